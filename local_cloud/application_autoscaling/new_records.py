"""New targets, policies and scheduled actions from the requests that ask for them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from local_cloud.application_autoscaling.actor import next_due
from local_cloud.application_autoscaling.records import Key, Policy, ScheduledAction, Target
from local_cloud.application_autoscaling.requests import (
    TRACKING,
    check_bounds,
    moment,
    refusal,
    whole,
)
from local_cloud.application_autoscaling.schedule import ScheduleError, schedule
from local_cloud.ministack.account import account_id, region

SERVICE_ROLE = (
    "aws-service-role/sagemaker.application-autoscaling.amazonaws.com/"
    "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
)


def new_target(key: Key, low: int, high: int) -> Target:
    """A target that nothing has scaled yet, with the service-linked role that AWS gives it."""
    return Target(
        key=key,
        arn=_arn("application-autoscaling", f"scalable-target/{uuid.uuid4().hex[:28]}"),
        role=f"arn:aws:iam::{account_id()}:role/{SERVICE_ROLE}",
        created=time.time(),
        low=low,
        high=high,
    )


def new_policy(key: Key, name: str) -> Policy:
    """A policy without a configuration."""
    arn = _arn("autoscaling", f"scalingPolicy:{uuid.uuid4()}:{_resource(key)}:policyName/{name}")
    return Policy(key=key, name=name, kind=TRACKING, arn=arn, created=time.time(), configuration={})


def scheduled_action(
    key: Key, request: Mapping[str, Any], found: ScheduledAction | None, seconds_per_minute: float
) -> ScheduledAction:
    """A scheduled action, or `found` with what a request changes of it."""
    name, given, now = (
        str(request.get("ScheduledActionName") or ""),
        request.get("ScalableTargetAction") or {},
        datetime.now(UTC),
    )
    low, high = whole(given, "MinCapacity"), whole(given, "MaxCapacity")
    if low is not None and high is not None:
        check_bounds(low, high)
    expression = str(request.get("Schedule") or (found.expression if found else ""))
    timezone = request.get("Timezone") or (found.timezone if found else None)
    try:
        read = schedule(expression, timezone, seconds_per_minute=seconds_per_minute)
    except ScheduleError as error:
        raise refusal(str(error)) from error
    action = ScheduledAction(
        key=key,
        name=name,
        arn=_arn(
            "autoscaling",
            f"scheduledAction:{uuid.uuid4()}:{_resource(key)}:scheduledActionName/{name}",
        ),
        created=now,
        expression=expression,
        timezone=timezone,
        schedule=read,
        low=low if given or found is None else found.low,
        high=high if given or found is None else found.high,
        first=moment(request.get("StartTime")),
        last=moment(request.get("EndTime")),
        due=None,
    )
    action.due = next_due(action, now)
    return action


def _resource(key: Key) -> str:
    return f"resource/{key.namespace}/{key.resource_id}"


def _arn(service: str, rest: str) -> str:
    return f"arn:aws:{service}:{region()}:{account_id()}:{rest}"
