"""The arithmetic of Application Auto Scaling: proposals and cool-downs; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_cloud.application_autoscaling.records import Change, Policy

ROUNDING = 1e-9
SCALE_IN_SHARE = 0.9
"""Target tracking scales in only below this share of its target."""
DEFAULT_COOLDOWN_SECONDS = 300
"""Application Auto Scaling's default for SageMaker's variants."""


@dataclass(frozen=True, kw_only=True)
class Breach:
    """An alarm in ALARM that triggers a policy; `values` are its datapoints, oldest first."""

    policy_arn: str
    alarm: str
    values: tuple[float, ...]
    threshold: float
    below: bool


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The capacity that one policy asks for, why, and its cool-downs in real seconds."""

    policy: Policy
    cause: str
    desired: int
    out_seconds: float
    in_seconds: float


def policy_proposal(
    policy: Policy, breach: Breach, current: int, stretch: float
) -> Proposal | None:
    """Return what a policy asks for, or None; `stretch` is real seconds per second of AWS."""
    desired = _desired_capacity(policy, breach, current) if breach.values else None
    if desired is None:
        return None
    names = ("ScaleOutCooldown", "ScaleInCooldown") if policy.is_tracking else ("Cooldown",) * 2
    seconds = [policy.configuration.get(name) for name in names]
    outward, inward = (DEFAULT_COOLDOWN_SECONDS if item is None else item for item in seconds)
    return Proposal(
        policy=policy,
        cause=f"monitor alarm {breach.alarm} in state ALARM triggered policy {policy.name}",
        desired=desired,
        out_seconds=outward * stretch,
        in_seconds=inward * stretch,
    )


def _desired_capacity(policy: Policy, breach: Breach, current: int) -> int | None:
    """A scale-out follows the newest datapoint; a scale-in the highest, so that it lasts."""
    if not policy.is_tracking:
        return step_capacity(policy.configuration, current, breach.values, breach.threshold)
    target = float(policy.configuration["TargetValue"])
    if breach.below:
        return min(current, tracked_capacity(current, max(breach.values), target))
    return max(current, tracked_capacity(current, breach.values[-1], target))


def tracked_capacity(current: int, metric: float, target: float) -> int:
    """Return the fewest instances that bring a metric per instance to its target or below."""
    if current == 0:
        return int(metric > target)
    return math.ceil(current * metric / target - ROUNDING)


def step_capacity(
    configuration: Mapping[str, Any], current: int, values: Sequence[float], threshold: float
) -> int | None:
    """Return what a step scaling policy asks for; None where no step covers the breach."""
    kind = configuration.get("MetricAggregationType")
    mean = math.fsum(values) / len(values)
    value = {"Minimum": min(values), "Maximum": max(values)}.get(str(kind), mean)
    for step in configuration["StepAdjustments"]:
        if _covers(step, value - threshold):
            return max(0, current + int(step["ScalingAdjustment"]))
    return None


def _covers(step: Mapping[str, Any], difference: float) -> bool:
    """Bounds include the one nearer to the threshold."""
    bounds = (step.get(f"MetricInterval{side}Bound") for side in ("Lower", "Upper"))
    low, high = (
        default if bound is None else bound
        for bound, default in zip(bounds, (-math.inf, math.inf), strict=True)
    )
    return low <= difference < high if difference >= 0 else low < difference <= high


def capacity_after_cooldown(
    proposal: Proposal, current: int, last: Change | None, now: float
) -> int:
    """Return what a proposal may ask for after the last change.

    Within a scale-out's cool-down, its instances count toward the next scale-out. A scale-in's
    cool-down blocks the next scale-in, and never a scale-out.
    """
    if last is None or proposal.desired == current:
        return proposal.desired
    if proposal.desired > current:
        cooling = last.after > last.before and now < last.at + proposal.out_seconds
        added = last.after - last.before if cooling else 0
        return max(current, proposal.desired - added)
    cooling = last.after < last.before and now < last.at + proposal.in_seconds
    return current if cooling else proposal.desired
