"""Scaling: alarms change capacities within their bounds, and not while they cool down."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from local_cloud.application_autoscaling.records import Change, Key, Policy, Target
from local_cloud.protocol.errors import AwsError, validation_error

if TYPE_CHECKING:
    from local_cloud.application_autoscaling.registry import Registry
    from local_cloud.sagemaker.components.component import Component
    from local_cloud.sagemaker.components.components import Components
    from local_cloud.sagemaker.hosting.endpoint import Endpoint

ROUNDING = 1e-9
DEFAULT_COOLDOWN_SECONDS = 300
"""Application Auto Scaling's default for SageMaker's variants."""
logger = logging.getLogger("roundhouse.scaling")


@dataclass(frozen=True, kw_only=True)
class Breach:
    """An alarm in ALARM that triggers a policy; `values` are its datapoints, oldest first."""

    policy_arn: str
    alarm: str
    values: tuple[float, ...]
    threshold: float
    below: bool


class Autoscaler:
    """Acts on the targets of the present account.

    `stretch` is real seconds per second of AWS.
    """

    def __init__(
        self,
        registry: Registry,
        components: Components,
        alarm_states: Callable[[Sequence[str]], Mapping[str, str]],
        stretch: float,
    ) -> None:
        self._registry, self._alarm_states, self._stretch = registry, alarm_states, stretch
        self._components, self._endpoints = components, components.endpoints

    def capacity(self, key: Key) -> tuple[int, int]:
        """Return present and desired capacity. Raises AwsError for what does not exist."""
        if key.component is not None:
            component = self._components.component(key.component)
            return len(component.copies), component.desired
        counts = self._endpoints.instances(key.endpoint)
        if key.variant not in counts:
            config = self._endpoints.endpoint_named(key.endpoint).config_name
            raise validation_error(
                f'The variant name(s) "{key.variant}" is/are not present within endpoint '
                f'configuration "{config}".'
            )
        return counts[key.variant]

    def enforce(self, target: Target) -> None:
        """Bring a target within its bounds, as registering it does."""
        desired = self.capacity(target.key)[1]
        if target.clamp(desired) != desired:
            self._set_capacity(target, target.clamp(desired), "its bounds")

    def step(self, breaches: Sequence[Breach], now: float) -> None:
        """Scale the present account for breached alarms; a target without a resource goes."""
        for target in list(self._registry.targets.values()):
            try:
                state = self._state(target.key)
            except AwsError:
                self._registry.forget(target.key)
                continue
            if target.changing is not None and state.status == "InService":
                target.last, target.changing = replace(target.changing, at=now), None
            try:
                self.act(target, breaches, now)
            except AwsError as error:
                logger.warning("%s: %s", target.key.resource_id, error.message)

    def act(self, target: Target, breaches: Iterable[Breach], now: float) -> None:
        """Scale one target to the largest capacity that the policies of breached alarms ask for."""
        current = self.capacity(target.key)[0]
        policies = self._registry.policies_of(target.key)
        known = {policy.arn: policy for policy in policies}
        capacities = {
            breach.alarm: self._allowed_capacity(policy, breach, target, policies, current, now)
            for breach in breaches
            if (policy := known.get(breach.policy_arn)) is not None and breach.values
        }
        alarm = max(capacities, key=lambda name: capacities[name], default=None)
        if alarm is None or capacities[alarm] == current:
            return
        capped, is_out = target.clamp(capacities[alarm]), capacities[alarm] > current
        direction = f"DynamicScaling{'Out' if is_out else 'In'}Suspended"
        if (
            capped != current
            and (capped > current) == is_out
            and self._state(target.key).status == "InService"
            and not target.suspended[direction]
        ):
            self._set_capacity(target, capped, f"alarm {alarm}")

    def _allowed_capacity(
        self,
        policy: Policy,
        breach: Breach,
        target: Target,
        policies: Sequence[Policy],
        current: int,
        now: float,
    ) -> int:
        """Nothing less than now while another tracking policy is not ready to scale in too."""
        desired = policy_capacity(policy, breach, current)
        desired = self._after_cooldown(policy, desired, current, target.last, now)
        if desired >= current:
            return desired
        others = [
            item
            for item in policies
            if item.is_tracking and item.scales_in and item.arn != policy.arn
        ]
        is_held = policy.is_tracking and not all(map(self._is_ready, others))
        return current if is_held or not policy.scales_in else desired

    def _is_ready(self, policy: Policy) -> bool:
        """Whether a tracking policy allows fewer instances: its low alarm is in ALARM."""
        names = [name for name in policy.alarms if "-AlarmLow-" in name]
        return "ALARM" in self._alarm_states(names).values()

    def _after_cooldown(
        self, policy: Policy, desired: int, current: int, last: Change | None, now: float
    ) -> int:
        """Return what a policy may ask for after the last change.

        Within a scale-out's cool-down, its instances count toward the next scale-out. A scale-in's
        cool-down blocks the next scale-in, and never a scale-out.
        """
        is_out = desired > current
        if last is None or desired == current or (last.after > last.before) != is_out:
            return desired
        name = f"Scale{'Out' if is_out else 'In'}Cooldown" if policy.is_tracking else "Cooldown"
        given = policy.configuration.get(name)
        seconds = (DEFAULT_COOLDOWN_SECONDS if given is None else given) * self._stretch
        if now >= last.at + seconds:
            return desired
        return max(current, desired - (last.after - last.before)) if is_out else current

    def _state(self, key: Key) -> Endpoint | Component:
        """What has a status. Raises AwsError where it is gone."""
        if key.component is not None:
            return self._components.component(key.component)
        return self._endpoints.endpoint_named(key.endpoint)

    def _set_capacity(self, target: Target, desired: int, cause: str) -> None:
        """Request a capacity; a refusal is logged."""
        key, before = target.key, self.capacity(target.key)[0]
        logger.info("%s: setting desired capacity to %d by %s", key.resource_id, desired, cause)
        try:
            if key.component is not None:
                self._components.scale(key.component, desired)
            else:
                self._endpoints.scale(key.endpoint, key.variant, desired)
        except AwsError as error:
            logger.warning("%s: %s", key.resource_id, error.message)
            return
        target.changing = Change(before=before, after=desired, at=0.0)


def policy_capacity(policy: Policy, breach: Breach, current: int) -> int:
    """Return what a policy asks for.

    A scale-out follows the newest datapoint; a scale-in the highest, so that it lasts.
    """
    if not policy.is_tracking:
        return _stepped_capacity(policy.configuration, breach, current)
    target = float(policy.configuration["TargetValue"])
    if breach.below:
        return min(current, tracked_capacity(current, max(breach.values), target))
    return max(current, tracked_capacity(current, breach.values[-1], target))


def tracked_capacity(current: int, metric: float, target: float) -> int:
    """Return the fewest instances that bring a metric per instance to its target or below."""
    if current == 0:
        return int(metric > target)
    return math.ceil(current * metric / target - ROUNDING)


def _stepped_capacity(configuration: Mapping[str, Any], breach: Breach, current: int) -> int:
    """Return what the step asks for that covers the breach's mean or, where it says so, maximum."""
    is_maximum = configuration.get("MetricAggregationType") == "Maximum"
    value = max(breach.values) if is_maximum else math.fsum(breach.values) / len(breach.values)
    for step in configuration["StepAdjustments"]:
        low, high = (step.get(f"MetricInterval{side}Bound") for side in ("Lower", "Upper"))
        above = value - breach.threshold
        if (low is None or low <= above) and (high is None or above < high):
            return max(0, current + int(step["ScalingAdjustment"]))
    return current
