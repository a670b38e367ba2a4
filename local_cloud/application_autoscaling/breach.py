"""An alarm that calls on a scaling policy, and the capacity that the policy asks for then; pure."""

from __future__ import annotations

from dataclasses import dataclass

from local_cloud.application_autoscaling.records import Policy
from local_cloud.application_autoscaling.tracking import (
    Cooldowns,
    Proposal,
    scale_in_metric,
    scale_out_metric,
    step_capacity,
    tracked_capacity,
)

DEFAULT_COOLDOWN_SECONDS = 300
"""What Application Auto Scaling takes for SageMaker's variants where a policy says nothing."""


@dataclass(frozen=True, kw_only=True)
class Breach:
    """An alarm in ALARM.

    The policy that it calls on, the datapoints that put it there, oldest first, and its threshold.
    """

    policy_arn: str
    alarm: str
    values: tuple[float, ...]
    threshold: float
    below: bool

    def cause(self, policy: Policy) -> str:
        """AWS's words for it."""
        return f"monitor alarm {self.alarm} in state ALARM triggered policy {policy.name}"


def policy_proposal(
    policy: Policy, breach: Breach, current: int, stretch: float
) -> Proposal | None:
    """What a policy asks for; None where none of its steps covers the breach.

    `stretch` is real seconds for one of AWS's.
    """
    desired = _desired_capacity(policy, breach, current)
    if desired is None:
        return None
    return Proposal(
        policy=policy.arn,
        cause=breach.cause(policy),
        desired=desired,
        cooldowns=_cooldowns(policy, stretch),
    )


def _desired_capacity(policy: Policy, breach: Breach, current: int) -> int | None:
    if not breach.values:
        return None
    if not policy.is_tracking:
        return step_capacity(policy.configuration, current, breach.values, breach.threshold)
    target = float(policy.configuration["TargetValue"])
    if breach.below:
        return min(current, tracked_capacity(current, scale_in_metric(breach.values), target))
    return max(current, tracked_capacity(current, scale_out_metric(breach.values), target))


def _cooldowns(policy: Policy, stretch: float) -> Cooldowns:
    names = (
        ("ScaleOutCooldown", "ScaleInCooldown") if policy.is_tracking else ("Cooldown", "Cooldown")
    )
    given = (policy.configuration.get(name) for name in names)
    out, back = (
        float(DEFAULT_COOLDOWN_SECONDS if seconds is None else seconds) for seconds in given
    )
    return Cooldowns(out_seconds=out * stretch, in_seconds=back * stretch)
