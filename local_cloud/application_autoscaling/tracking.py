"""The arithmetic of Application Auto Scaling.

What a metric asks for, which policy wins, what cool-downs allow; pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROUNDING = 1e-9
SCALE_IN_SHARE = 0.9
"""Target tracking scales in only below this share of its target."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of capacity that has come about; `at` in seconds since the epoch."""

    before: int
    after: int
    at: float


@dataclass(frozen=True, kw_only=True)
class Cooldowns:
    """Real seconds between two changes in the same direction."""

    out_seconds: float
    in_seconds: float


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The capacity that one policy asks for, and why."""

    policy: str
    cause: str
    desired: int
    cooldowns: Cooldowns


def tracked_capacity(current: int, metric: float, target: float) -> int:
    """The fewest instances that bring the metric, which is per instance, to its target or below."""
    if current == 0:
        return int(metric > target)
    return math.ceil(current * metric / target - ROUNDING)


def scale_out_metric(values: Sequence[float]) -> float:
    """The datapoint that a scale-out follows: the newest."""
    return values[-1]


def scale_in_metric(values: Sequence[float]) -> float:
    """The datapoint that a scale-in follows: the highest, so that it is not undone at once."""
    return max(values)


def step_capacity(
    configuration: Mapping[str, Any], current: int, values: Sequence[float], threshold: float
) -> int | None:
    """What a step scaling policy asks for when its alarm's datapoints breach a threshold.

    None where no step covers them.
    """
    difference = (
        _aggregate(str(configuration.get("MetricAggregationType") or "Average"), values) - threshold
    )
    for step in configuration["StepAdjustments"]:
        if _covers(step, difference):
            return max(0, _adjust(configuration, current, float(step["ScalingAdjustment"])))
    return None


def _aggregate(kind: str, values: Sequence[float]) -> float:
    if kind == "Minimum":
        return min(values)
    return max(values) if kind == "Maximum" else math.fsum(values) / len(values)


def _covers(step: Mapping[str, Any], difference: float) -> bool:
    """Bounds include the one nearer to the threshold."""
    low, high = step.get("MetricIntervalLowerBound"), step.get("MetricIntervalUpperBound")
    lower = -math.inf if low is None else float(low)
    upper = math.inf if high is None else float(high)
    return lower <= difference < upper if difference >= 0 else lower < difference <= upper


def _adjust(configuration: Mapping[str, Any], current: int, adjustment: float) -> int:
    if configuration["AdjustmentType"] == "ExactCapacity":
        return int(adjustment)
    if configuration["AdjustmentType"] == "ChangeInCapacity":
        return current + int(adjustment)
    change = math.trunc(current * adjustment / 100)
    least = int(configuration.get("MinAdjustmentMagnitude") or 1)
    if adjustment and abs(change) < least:
        change = int(math.copysign(least, adjustment))
    return current + change


def winner(proposals: Sequence[Proposal], current: int) -> Proposal | None:
    """The proposal that takes effect: whoever asks for the most, also when all ask for less.

    None where that changes nothing.
    """
    most = max(proposals, key=lambda proposal: proposal.desired, default=None)
    return None if most is None or most.desired == current else most


def capacity_after_cooldown(
    proposal: Proposal, current: int, last: Change | None, now: float
) -> int:
    """What a proposal may ask for after the last change.

    Within a cool-down only what goes beyond it.

    A scale-out that is still cooling counts toward the next one; a scale-in that is still cooling
    blocks the next one, and never
    a scale-out.
    """
    if last is None or proposal.desired == current:
        return proposal.desired
    if proposal.desired > current:
        cooling = last.after > last.before and now < last.at + proposal.cooldowns.out_seconds
        return (
            max(current, proposal.desired - (last.after - last.before))
            if cooling
            else proposal.desired
        )
    cooling = last.after < last.before and now < last.at + proposal.cooldowns.in_seconds
    return current if cooling else proposal.desired


def clamp(desired: int, low: int, high: int) -> int:
    """A capacity within its bounds."""
    return min(max(desired, low), high)
