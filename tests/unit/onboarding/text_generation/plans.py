"""Plans that `check` refuses or accepts: tests/fixtures/text_generation as model files."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import yaml

from tests.unit.onboarding.text_generation.shapes import FIXTURES

FOLDER = FIXTURES / "text_generation"
BASE = yaml.safe_load((FOLDER / "base.yaml").read_text())
PLANS = yaml.safe_load((FOLDER / "plans.yaml").read_text())


def plan_text(change: Mapping[str, Any]) -> str:
    """Return the model file of a plan."""
    data = _merge(copy.deepcopy(BASE), change)
    return yaml.safe_dump(data, sort_keys=False, width=10_000)


def _merge(base: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in change.items():
        if value is None:
            base.pop(key, None)
        elif isinstance(value, Mapping):
            base[key] = _merge(dict(base.get(key, {})), value)
        else:
            base[key] = value
    return base
