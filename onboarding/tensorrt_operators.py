"""The operators that TensorRT's own list supports: onboarding/data/tensorrt_operators.yaml."""

from __future__ import annotations

import json
from functools import cache

from onboarding.values import Value
from onboarding.yaml_text import load_data

FILE = "tensorrt_operators.yaml"


class OperatorList(Value):
    """The list of one TensorRT release, which later ones have only added to so far."""

    tensorrt: str
    date: str
    source: str
    supported: tuple[str, ...]
    restricted: dict[str, str]
    """What holds for an operator that is supported with restrictions."""
    unsupported: tuple[str, ...]


@cache
def operator_list() -> OperatorList:
    """Return the shipped list."""
    return OperatorList.model_validate_json(json.dumps(load_data(FILE)))
