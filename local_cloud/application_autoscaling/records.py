"""What Application Auto Scaling keeps.

Scalable targets, policies, scheduled actions and activities, each as it is described.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from local_cloud.application_autoscaling.schedule import Schedule
from local_cloud.application_autoscaling.tracking import Change

Described = dict[str, Any]
SUSPENSIONS = (
    "DynamicScalingInSuspended",
    "DynamicScalingOutSuspended",
    "ScheduledScalingSuspended",
)


class Key(NamedTuple):
    """What is scaled: a namespace, a resource and a dimension of it."""

    namespace: str
    resource_id: str
    dimension: str

    def as_description(self) -> Described:
        """Its three fields."""
        return {
            "ServiceNamespace": self.namespace,
            "ResourceId": self.resource_id,
            "ScalableDimension": self.dimension,
        }

    @property
    def endpoint(self) -> str:
        """The endpoint's name, of `endpoint/<name>/variant/<name>`."""
        return self.resource_id.split("/")[1]

    @property
    def variant(self) -> str:
        """The variant's name."""
        return self.resource_id.split("/")[3]


@dataclass(kw_only=True)
class Target:
    """A scalable target: its bounds, what is suspended, and the last change of its capacity."""

    key: Key
    arn: str
    role: str
    created: float
    low: int
    high: int
    suspended: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(SUSPENSIONS, False))
    last: Change | None = None

    def as_description(self) -> Described:
        """As DescribeScalableTargets shows it."""
        return {
            **self.key.as_description(),
            "MinCapacity": self.low,
            "MaxCapacity": self.high,
            "RoleARN": self.role,
            "CreationTime": self.created,
            "SuspendedState": self.suspended,
            "ScalableTargetARN": self.arn,
        }


@dataclass(kw_only=True)
class Policy:
    """A scaling policy, its configuration as requested, and the names of its alarms."""

    key: Key
    name: str
    kind: str
    arn: str
    created: float
    configuration: Mapping[str, Any]
    alarms: tuple[str, ...] = ()

    @property
    def is_tracking(self) -> bool:
        """Whether it holds a metric at a target."""
        return self.kind == "TargetTrackingScaling"

    @property
    def scales_in(self) -> bool:
        """Whether it may take instances away."""
        return (
            not self.is_tracking
            or str(self.configuration.get("DisableScaleIn", False)).lower() != "true"
        )


@dataclass(kw_only=True)
class ScheduledAction:
    """New bounds at a time.

    `due` is when next, None when never again; `first` and `last` are when it begins and ends.
    """

    key: Key
    name: str
    arn: str
    created: datetime
    expression: str
    timezone: str | None
    schedule: Schedule
    low: int | None
    high: int | None
    first: datetime | None
    last: datetime | None
    due: datetime | None

    def as_description(self) -> Described:
        """As DescribeScheduledActions shows it."""
        action = {"MinCapacity": self.low, "MaxCapacity": self.high}
        optional = {
            "Timezone": self.timezone,
            "StartTime": _seconds(self.first),
            "EndTime": _seconds(self.last),
        }
        return {
            **self.key.as_description(),
            "ScheduledActionName": self.name,
            "ScheduledActionARN": self.arn,
            "Schedule": self.expression,
            "ScalableTargetAction": {
                name: value for name, value in action.items() if value is not None
            },
            "CreationTime": self.created.timestamp(),
            **{name: value for name, value in optional.items() if value is not None},
        }


@dataclass(kw_only=True)
class Activity:
    """A scaling activity. `desired` is the capacity that it asks for, None when it changes none."""

    key: Key
    description: str
    cause: str
    status: str
    message: str
    desired: int | None = None
    before: int = 0
    started: float = field(default_factory=time.time)
    ended: float | None = None
    not_scaled: Mapping[str, Any] | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def is_open(self) -> bool:
        """Whether its change is still coming about."""
        return self.status == "InProgress"

    def end(self, status: str, message: str) -> None:
        """Ends it."""
        self.status, self.message, self.ended = status, message, time.time()

    def as_description(self) -> Described:
        """As DescribeScalingActivities shows it."""
        optional = {
            "EndTime": self.ended,
            "NotScaledReasons": None if self.not_scaled is None else [self.not_scaled],
        }
        return {
            "ActivityId": self.id,
            **self.key.as_description(),
            "Description": self.description,
            "Cause": self.cause,
            "StartTime": self.started,
            "StatusCode": self.status,
            "StatusMessage": self.message,
            **{name: value for name, value in optional.items() if value is not None},
        }


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
