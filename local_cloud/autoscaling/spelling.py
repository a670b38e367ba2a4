"""Policy configurations as templates spell them: numbers and truths given as text become what they
mean; pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from local_cloud.checks import number

WHOLE = frozenset(
    {"ScaleInCooldown", "ScaleOutCooldown", "Cooldown", "MinAdjustmentMagnitude", "ScalingAdjustment"}
)  # fmt: skip
FRACTIONS = frozenset({"TargetValue", "MetricIntervalLowerBound", "MetricIntervalUpperBound"})
TRUTHS = frozenset({"DisableScaleIn", "ReturnData"})


def with_numbers(value: Any) -> Any:
    """The same configuration with its known numbers and truths typed."""
    if isinstance(value, list | tuple):
        return [with_numbers(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _typed(str(name), each) for name, each in value.items() if each is not None}
    return value


def _typed(name: str, value: Any) -> Any:
    if name in WHOLE:
        return int(number(value))
    if name in FRACTIONS:
        return number(value)
    return str(value).lower() == "true" if name in TRUTHS else with_numbers(value)
