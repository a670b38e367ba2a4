"""Scaling: open activities are followed, and alarms change capacities within their bounds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from local_cloud.application_autoscaling.records import Activity, Change, Key, Policy, Target
from local_cloud.application_autoscaling.tracking import (
    Breach,
    Proposal,
    capacity_after_cooldown,
    policy_proposal,
)
from local_cloud.protocol.errors import AwsError, validation_error

if TYPE_CHECKING:
    from local_cloud.application_autoscaling.registry import Registry
    from local_cloud.sagemaker.components.component import Component
    from local_cloud.sagemaker.components.components import Components
    from local_cloud.sagemaker.hosting.endpoint import Endpoint

logger = logging.getLogger("roundhouse.scaling")


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
        bounded = target.clamp(desired)
        if bounded != desired:
            bound = "minimum" if bounded > desired else "maximum"
            self._set_capacity(target, bounded, f"{bound} capacity was set to {bounded}")

    def step(self, breaches: Sequence[Breach], now: float) -> None:
        """Follow the present account's open activities, and scale for breached alarms."""
        activities = self._registry.activities
        activities[:] = [activity for activity in activities if self._is_open(activity)]
        for target in list(self._registry.targets.values()):
            self._step_target(target, breaches, now)

    def _step_target(self, target: Target, breaches: Sequence[Breach], now: float) -> None:
        """A target whose resource is gone is removed."""
        try:
            self._state(target.key)
        except AwsError:
            self._registry.forget(target.key)
            return
        try:
            self.act(target, breaches, now)
        except AwsError as error:
            logger.warning("%s: %s", target.key.resource_id, error.message)

    def act(self, target: Target, breaches: Iterable[Breach], now: float) -> None:
        """Scale one target to the largest capacity that the policies of breached alarms ask for."""
        current = self.capacity(target.key)[0]
        policies = self._registry.policies_of(target.key)
        known = {policy.arn: policy for policy in policies}
        proposals = [
            replace(item, desired=self._allowed_capacity(item, target, policies, current, now))
            for breach in breaches
            if breach.policy_arn in known
            and (item := policy_proposal(known[breach.policy_arn], breach, current, self._stretch))
            is not None
        ]
        chosen = max(proposals, key=lambda proposal: proposal.desired, default=None)
        if chosen is None or chosen.desired == current:
            return
        capped, is_out = target.clamp(chosen.desired), chosen.desired > current
        direction = f"DynamicScaling{'Out' if is_out else 'In'}Suspended"
        if (
            capped != current
            and (capped > current) == is_out
            and self._state(target.key).status == "InService"
            and not target.suspended[direction]
        ):
            self._set_capacity(target, capped, chosen.cause)

    def _allowed_capacity(
        self,
        proposal: Proposal,
        target: Target,
        policies: Sequence[Policy],
        current: int,
        now: float,
    ) -> int:
        """Nothing less than now while another tracking policy is not ready to scale in too."""
        desired = capacity_after_cooldown(proposal, current, target.last, now)
        policy = proposal.policy
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

    def _state(self, key: Key) -> Endpoint | Component:
        """What has a status and a failure reason. Raises AwsError where it is gone."""
        if key.component is not None:
            return self._components.component(key.component)
        return self._endpoints.endpoint_named(key.endpoint)

    def _set_capacity(self, target: Target, desired: int, cause: str) -> None:
        """Request a capacity; a refusal is logged."""
        key = target.key
        activity = Activity(key=key, desired=desired, before=self.capacity(key)[0])
        logger.info("%s: setting desired capacity to %d (%s)", key.resource_id, desired, cause)
        try:
            if key.component is not None:
                self._components.scale(key.component, desired)
            else:
                self._endpoints.scale(key.endpoint, key.variant, desired)
        except AwsError as error:
            logger.warning("%s: %s", key.resource_id, error.message)
            return
        self._registry.activities.append(activity)

    def _is_open(self, activity: Activity) -> bool:
        """Whether the resource has not settled yet; the target's cool-down begins once it has."""
        key = activity.key
        try:
            state = self._state(key)
            # Status before counts: the counts read before it would be those of a change under way.
            if state.status in ("Updating", "SystemUpdating", "RollingBack"):
                return True
            running = self.capacity(key)[0]
        except AwsError:
            return False
        target = self._registry.targets.get(key)
        if running != activity.desired:
            reason = state.failure_reason or f"is {state.status} with a capacity of {running}"
            logger.warning("%s: %s", key.resource_id, reason)
        elif target is not None:
            target.last = Change(before=activity.before, after=running, at=time.time())
        return False
