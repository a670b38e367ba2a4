"""Scaling activities.

Begun with AWS's words, watched until the endpoint has done what was asked, and listed newest first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, MutableSequence
from typing import Protocol

from local_cloud.application_autoscaling.records import Activity, Key, Target
from local_cloud.application_autoscaling.tracking import Change
from local_cloud.protocol.errors import AwsError

KEPT = 1000


class EndpointState(Protocol):
    """What scaling asks of an endpoint's record."""

    status: str
    failure_reason: str | None


class Endpoints(Protocol):
    """What scaling asks of the endpoints of the account in hand."""

    def endpoint_named(self, name: str) -> EndpointState:
        """The endpoint of a name; AwsError when there is none."""

    def instances(self, endpoint_name: str) -> Mapping[str, tuple[int, int]]:
        """How many instances each variant has, and how many it should have."""

    def scale(self, endpoint_name: str, variant_name: str, desired: int) -> None:
        """Begins to start or stop instances; AwsError while something else is under way."""


def capacity(endpoints: Endpoints, key: Key) -> tuple[int, int]:
    """Present and desired instances of a variant. Raises AwsError for an unknown variant."""
    counts = endpoints.instances(key.endpoint)
    if key.variant not in counts:
        name = getattr(endpoints.endpoint_named(key.endpoint), "config_name", key.endpoint)
        message = (
            f'The variant name(s) "{key.variant}" is/are not present within endpoint '
            f'configuration "{name}".'
        )
        raise AwsError("ValidationException", message)
    return counts[key.variant]


def is_steady(endpoints: Endpoints, key: Key) -> bool:
    """Whether an endpoint may be scaled: no update or scaling is under way."""
    return endpoints.endpoint_named(key.endpoint).status == "InService"


def begin_activity(endpoints: Endpoints, key: Key, desired: int, cause: str) -> Activity:
    """Asks for a capacity, and records what was said to that."""
    activity = Activity(
        key=key,
        description=f"Setting desired instance count to {desired}.",
        cause=cause,
        status="InProgress",
        message=f"Successfully set desired instance count to {desired}. Waiting for change to be "
        "fulfilled by sagemaker.",
        desired=desired,
        before=capacity(endpoints, key)[0],
    )
    try:
        endpoints.scale(key.endpoint, key.variant, desired)
    except AwsError as error:
        activity.end(
            "Failed", _failure(desired, f"{error.message} ({_service(error.status, error.code)})")
        )
    return activity


def follow_activity(endpoints: Endpoints, activity: Activity, target: Target | None) -> None:
    """Ends an open activity once its endpoint has settled, and begins the target's cool-down."""
    try:
        state = endpoints.endpoint_named(activity.key.endpoint)
        # First whether it has settled, then how: counts from before would be those of a change
        # under way.
        if state.status in ("Updating", "SystemUpdating", "RollingBack"):
            return
        counts = endpoints.instances(activity.key.endpoint)
    except AwsError as error:
        activity.end("Failed", _failure(activity.desired, error.message))
        return
    running = counts.get(activity.key.variant, (0, 0))[0]
    if running != activity.desired:
        reason = (
            state.failure_reason
            or f"endpoint {activity.key.endpoint} is {state.status} with {running} instances"
        )
        activity.end("Failed", _failure(activity.desired, reason))
        return
    message = (
        f"Successfully set desired instance count to {activity.desired}. Change "
        "successfully fulfilled by sagemaker."
    )
    activity.end("Successful", message)
    if target is not None:
        target.last = Change(before=activity.before, after=running, at=time.time())


def activity_without_change(key: Key, cause: str, reason: Mapping[str, object]) -> Activity:
    """An alarm that changed nothing, and why."""
    activity = Activity(
        key=key,
        description="Attempting to scale due to alarm triggered",
        cause=cause,
        status="InProgress",
        message="",
        not_scaled=reason,
    )
    activity.end("Failed", f"Did not scale: {reason['Code']}.")
    return activity


def new_bounds(target: Target, cause: str) -> Activity:
    """A scheduled action that has set a target's bounds."""
    bounds = f"min capacity to {target.low} and max capacity to {target.high}"
    activity = Activity(
        key=target.key,
        description=f"Setting {bounds}",
        cause=cause,
        status="InProgress",
        message="",
    )
    activity.end("Successful", f"Successfully set {bounds}")
    return activity


def keep(activities: MutableSequence[Activity], activity: Activity) -> None:
    """Adds an activity in front.

    A repetition of the same reason not to scale takes the place of the one before it.
    """
    if activities and activity.not_scaled is not None:
        before = activities[0]
        if before.not_scaled == activity.not_scaled and before.key == activity.key:
            del activities[0]
    activities.insert(0, activity)
    del activities[KEPT:]


def _failure(desired: int | None, reason: str) -> str:
    return f"Failed to set desired instance count to {desired}. Reason: {reason}"


def _service(status: int, code: str) -> str:
    return f"Service: AmazonSageMaker; Status Code: {status}; Error Code: {code}"
