"""Scaling activities in AWS's words, from their beginning until the endpoint has settled."""

from __future__ import annotations

import time
from collections.abc import Mapping, MutableSequence
from typing import TYPE_CHECKING

from local_cloud.application_autoscaling.records import Activity, Change, Key, Target
from local_cloud.protocol.errors import AwsError

if TYPE_CHECKING:
    from local_cloud.sagemaker.hosting.endpoints import Endpoints

MOST = 1000
"""How many activities are listed."""


def capacity(endpoints: Endpoints, key: Key) -> tuple[int, int]:
    """Return present and desired instances of a variant. Raises AwsError for an unknown variant."""
    counts = endpoints.instances(key.endpoint)
    if key.variant not in counts:
        config = endpoints.endpoint_named(key.endpoint).config_name
        raise AwsError(
            "ValidationException",
            f'The variant name(s) "{key.variant}" is/are not present within endpoint '
            f'configuration "{config}".',
        )
    return counts[key.variant]


def begin_activity(endpoints: Endpoints, key: Key, desired: int, cause: str) -> Activity:
    """Request a capacity, and return the activity, which has failed where that is refused."""
    activity = Activity(
        key=key,
        description=f"Setting desired instance count to {desired}.",
        cause=cause,
        message=f"Successfully set desired instance count to {desired}. Waiting for change to be "
        "fulfilled by sagemaker.",
        desired=desired,
        before=capacity(endpoints, key)[0],
    )
    try:
        endpoints.scale(key.endpoint, key.variant, desired)
    except AwsError as error:
        _fail(
            activity,
            f"{error.message} (Service: AmazonSageMaker; Status Code: {error.status}; Error Code: "
            f"{error.code})",
        )
    return activity


def follow_activity(endpoints: Endpoints, activity: Activity, target: Target | None) -> None:
    """End an open activity once its endpoint has settled, and begin the target's cool-down."""
    try:
        state = endpoints.endpoint_named(activity.key.endpoint)
        # Status before counts: the counts read before it would be those of a change under way.
        if state.status in ("Updating", "SystemUpdating", "RollingBack"):
            return
        counts = endpoints.instances(activity.key.endpoint)
    except AwsError as error:
        _fail(activity, error.message)
        return
    running = counts.get(activity.key.variant, (0, 0))[0]
    if running != activity.desired:
        status = f"endpoint {activity.key.endpoint} is {state.status} with {running} instances"
        _fail(activity, state.failure_reason or status)
        return
    activity.end(
        "Successful",
        f"Successfully set desired instance count to {activity.desired}. Change successfully "
        "fulfilled by sagemaker.",
    )
    if target is not None:
        target.last = Change(before=activity.before, after=running, at=time.time())


def _fail(activity: Activity, reason: str) -> None:
    activity.end(
        "Failed", f"Failed to set desired instance count to {activity.desired}. Reason: {reason}"
    )


def activity_without_change(key: Key, cause: str, reason: Mapping[str, object]) -> Activity:
    """Return the activity of an alarm that changed nothing, with the reason."""
    return Activity(
        key=key,
        description="Attempting to scale due to alarm triggered",
        cause=cause,
        not_scaled=reason,
    ).end("Failed", f"Did not scale: {reason['Code']}.")


def keep(activities: MutableSequence[Activity], activity: Activity) -> None:
    """Add an activity in front; a repeated reason not to scale replaces the one before it."""
    if (
        activities
        and activity.not_scaled is not None
        and activities[0].not_scaled == activity.not_scaled
        and activities[0].key == activity.key
    ):
        del activities[0]
    activities.insert(0, activity)
    del activities[MOST:]
