"""Rows of the platform data that the local cloud needs; it has no pydantic to read them with."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def instance_rows() -> dict[str, dict[str, Any]]:
    """Return the row of every hosting type known, by name."""
    return {row["name"]: row for row in _content("instance_types.yaml")["rows"]}


@cache
def scale_to_zero_regions() -> tuple[frozenset[str], frozenset[str]]:
    """Return regions that took an endpoint without instances, and those that refused it."""
    regions = _content("generation_platforms.yaml")["scale_to_zero"]
    return frozenset(regions["accepted"]), frozenset(regions["refused"])


def _content(name: str) -> Any:
    text = resources.files("onboarding.data").joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
