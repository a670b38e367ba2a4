"""Actions of scaling: alarms change the capacity of a target within its bounds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from local_cloud.application_autoscaling.records import (
    Activity,
    Change,
    Key,
    Policy,
    Target,
)
from local_cloud.application_autoscaling.tracking import (
    Breach,
    Proposal,
    capacity_after_cooldown,
    clamp,
    policy_proposal,
    winner,
)
from local_cloud.protocol.errors import AwsError

if TYPE_CHECKING:
    from local_cloud.sagemaker.components.component import Component
    from local_cloud.sagemaker.components.components import Components
    from local_cloud.sagemaker.hosting.endpoint import Endpoint
    from local_cloud.sagemaker.hosting.endpoints import Endpoints

logger = logging.getLogger("roundhouse.scaling")
Activities = MutableSequence[Activity]
MOST_ACTIVITIES = 1000
"""How many activities are listed."""


@dataclass(frozen=True, kw_only=True)
class ScaledResources:
    """The present account's endpoints and inference components, by the keys of their targets."""

    endpoints: Endpoints
    components: Components

    def state(self, key: Key) -> Endpoint | Component:
        """Return what has a status and a failure reason. Raises AwsError where it is gone."""
        if key.component is not None:
            return self.components.component(key.component)
        return self.endpoints.endpoint_named(key.endpoint)

    def capacity(self, key: Key) -> tuple[int, int]:
        """Return present and desired capacity. Raises AwsError for what does not exist."""
        if key.component is not None:
            component = self.components.component(key.component)
            return len(component.copies), component.desired
        counts: Mapping[str, tuple[int, int]] = self.endpoints.instances(key.endpoint)
        if key.variant not in counts:
            config = self.endpoints.endpoint_named(key.endpoint).config_name
            raise AwsError(
                "ValidationException",
                f'The variant name(s) "{key.variant}" is/are not present within endpoint '
                f'configuration "{config}".',
            )
        return counts[key.variant]

    def scale(self, key: Key, desired: int) -> None:
        """Begin to change a capacity. Raises AwsError where that is refused."""
        if key.component is not None:
            self.components.scale(key.component, desired)
        else:
            self.endpoints.scale(key.endpoint, key.variant, desired)


@dataclass(frozen=True, kw_only=True)
class Actor:
    """Acts on the present account's resources; `stretch` is real seconds per second of AWS."""

    resources: ScaledResources
    alarm_states: Callable[[Sequence[str]], Mapping[str, str]]
    stretch: float

    def act(
        self,
        target: Target,
        policies: Sequence[Policy],
        breaches: Iterable[Breach],
        activities: Activities,
        now: float,
    ) -> None:
        """Scale one target to the largest capacity that the policies of breached alarms ask for."""
        current, desired = self.resources.capacity(target.key)
        known = {policy.arn: policy for policy in policies}
        proposals = [
            proposal
            for breach in breaches
            if (policy := known.get(breach.policy_arn)) is not None
            and (proposal := policy_proposal(policy, breach, current, self.stretch)) is not None
        ]
        if not proposals:
            return
        allowed = [
            replace(item, desired=self._allowed_capacity(item, target, policies, current, now))
            for item in proposals
        ]
        chosen = winner(allowed, current)
        if chosen is None:
            return
        capped = clamp(chosen.desired, target.low, target.high)
        is_out = chosen.desired > current
        if capped == current or (capped > current) != is_out:
            logger.info("%s stays at %d of %d", target.key.resource_id, current, desired)
        elif (
            self.resources.state(target.key).status == "InService"
            and not target.suspended[f"DynamicScaling{'Out' if is_out else 'In'}Suspended"]
        ):
            self._set_capacity(target, capped, chosen.cause, activities)

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
        if desired >= current:
            return desired
        policy = proposal.policy
        others = [
            item
            for item in policies
            if item.is_tracking and item.scales_in and item.arn != policy.arn
        ]
        if policy.is_tracking and not all(map(self._is_ready, others)):
            return current
        return desired if policy.scales_in else current

    def _is_ready(self, policy: Policy) -> bool:
        """Whether a tracking policy allows fewer instances: its low alarm is in ALARM."""
        names = [name for name in policy.alarms if "-AlarmLow-" in name]
        return "ALARM" in self.alarm_states(names).values()

    def enforce(self, target: Target, activities: Activities) -> None:
        """Bring a target within its bounds, as registering it does."""
        desired = self.resources.capacity(target.key)[1]
        bounded = clamp(desired, target.low, target.high)
        if bounded != desired:
            bound = "minimum" if bounded > desired else "maximum"
            cause = f"{bound} capacity was set to {bounded}"
            self._set_capacity(target, bounded, cause, activities)

    def _set_capacity(
        self, target: Target, desired: int, cause: str, activities: Activities
    ) -> None:
        activity = begin_activity(self.resources, target.key, desired, cause)
        logger.info("%s: %s (%s)", target.key.resource_id, activity.description, cause)
        keep(activities, activity)

    def follow(self, targets: Mapping[Key, Target], activities: Iterable[Activity]) -> None:
        """End the activities whose change is complete or has failed."""
        for activity in activities:
            if activity.status == "InProgress":
                follow_activity(self.resources, activity, targets.get(activity.key))


def begin_activity(resources: ScaledResources, key: Key, desired: int, cause: str) -> Activity:
    """Request a capacity, and return the activity, which has failed where that is refused."""
    activity = Activity(
        key=key,
        description=f"Setting desired {key.noun} count to {desired}.",
        cause=cause,
        message=f"Successfully set desired {key.noun} count to {desired}. Waiting for change to be "
        "fulfilled by sagemaker.",
        desired=desired,
        before=resources.capacity(key)[0],
    )
    try:
        resources.scale(key, desired)
    except AwsError as error:
        _fail(
            activity,
            f"{error.message} (Service: AmazonSageMaker; Status Code: {error.status}; Error Code: "
            f"{error.code})",
        )
    return activity


def follow_activity(resources: ScaledResources, activity: Activity, target: Target | None) -> None:
    """End an open activity once its endpoint has settled, and begin the target's cool-down."""
    try:
        state = resources.state(activity.key)
        # Status before counts: the counts read before it would be those of a change under way.
        if state.status in ("Updating", "SystemUpdating", "RollingBack"):
            return
        running = resources.capacity(activity.key)[0]
    except AwsError as error:
        _fail(activity, error.message)
        return
    if running != activity.desired:
        status = f"{activity.key.resource_id} is {state.status} with a capacity of {running}"
        _fail(activity, state.failure_reason or status)
        return
    activity.end(
        "Successful",
        f"Successfully set desired {activity.key.noun} count to {activity.desired}. Change "
        "successfully fulfilled by sagemaker.",
    )
    if target is not None:
        target.last = Change(before=activity.before, after=running, at=time.time())


def _fail(activity: Activity, reason: str) -> None:
    activity.end(
        "Failed",
        f"Failed to set desired {activity.key.noun} count to {activity.desired}. Reason: {reason}",
    )


def keep(activities: Activities, activity: Activity) -> None:
    """Add an activity in front."""
    activities.insert(0, activity)
    del activities[MOST_ACTIVITIES:]
