"""Scalable targets, policies, scheduled actions and activities, each with its description."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from local_cloud.protocol.errors import present_fields

Description = dict[str, Any]
SUSPENSIONS = (
    "DynamicScalingInSuspended",
    "DynamicScalingOutSuspended",
    "ScheduledScalingSuspended",
)
TRACKING, STEP = "TargetTrackingScaling", "StepScaling"
CONFIGURATIONS = {kind: f"{kind}PolicyConfiguration" for kind in (TRACKING, STEP)}


class Key(NamedTuple):
    """A scalable dimension of a resource."""

    namespace: str
    resource_id: str
    dimension: str

    def as_description(self) -> Description:
        """Return its three fields."""
        return {
            "ServiceNamespace": self.namespace,
            "ResourceId": self.resource_id,
            "ScalableDimension": self.dimension,
        }

    @property
    def text(self) -> str:
        """How refusals name it."""
        return (
            f"service namespace: {self.namespace}, resource ID: {self.resource_id}, scalable "
            f"dimension: {self.dimension}"
        )

    @property
    def component(self) -> str | None:
        """The inference component's name, of `inference-component/<name>`."""
        kind, name = self.resource_id.split("/")[:2]
        return name if kind == "inference-component" else None

    @property
    def endpoint(self) -> str:
        """The endpoint's name, of `endpoint/<name>/variant/<name>`; empty for a component."""
        return "" if self.component is not None else self.resource_id.split("/")[1]

    @property
    def variant(self) -> str:
        """The variant's name; empty for a component."""
        return "" if self.component is not None else self.resource_id.split("/")[3]

    @property
    def noun(self) -> str:
        """What its capacity counts."""
        return "instance" if self.component is None else "copy"

    @property
    def metric_dimensions(self) -> list[dict[str, str]]:
        """The CloudWatch dimensions of its metrics."""
        if self.component is not None:
            return [{"Name": "InferenceComponentName", "Value": self.component}]
        return [
            {"Name": "EndpointName", "Value": self.endpoint},
            {"Name": "VariantName", "Value": self.variant},
        ]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A completed change of capacity; `at` in seconds since the epoch."""

    before: int
    after: int
    at: float


@dataclass(kw_only=True)
class Target:
    """A scalable target: its bounds, its suspensions, and the last change of its capacity."""

    key: Key
    arn: str
    role: str
    low: int
    high: int
    created: float = field(default_factory=time.time)
    suspended: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(SUSPENSIONS, False))
    last: Change | None = None

    def as_description(self) -> Description:
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
    """A scaling policy, its configuration as requested, and its alarms: ARNs by name."""

    key: Key
    name: str
    arn: str
    kind: str = TRACKING
    configuration: Mapping[str, Any] = field(default_factory=dict)
    created: float = field(default_factory=time.time)
    alarms: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_tracking(self) -> bool:
        """Whether it holds a metric at a target."""
        return self.kind == TRACKING

    @property
    def scales_in(self) -> bool:
        """Whether it may remove instances."""
        return not (self.is_tracking and self.configuration.get("DisableScaleIn"))

    def as_description(self) -> Description:
        """As DescribeScalingPolicies shows it."""
        return {
            "PolicyARN": self.arn,
            "PolicyName": self.name,
            **self.key.as_description(),
            "PolicyType": self.kind,
            CONFIGURATIONS[self.kind]: dict(self.configuration),
            "Alarms": [{"AlarmName": name, "AlarmARN": arn} for name, arn in self.alarms.items()],
            "CreationTime": self.created,
        }


@dataclass(kw_only=True)
class ScheduledAction:
    """New bounds at a time, which are kept and never set."""

    key: Key
    name: str
    arn: str
    expression: str
    timezone: str | None
    low: int | None
    high: int | None
    created: float = field(default_factory=time.time)

    def as_description(self) -> Description:
        """As DescribeScheduledActions shows it."""
        return {
            **self.key.as_description(),
            "ScheduledActionName": self.name,
            "ScheduledActionARN": self.arn,
            "Schedule": self.expression,
            "ScalableTargetAction": present_fields(MinCapacity=self.low, MaxCapacity=self.high),
            "CreationTime": self.created,
            **present_fields(Timezone=self.timezone),
        }


@dataclass(kw_only=True)
class Activity:
    """A scaling activity; `desired` is the capacity it requests, None where it changes none."""

    key: Key
    description: str
    cause: str
    status: str = "InProgress"
    message: str = ""
    desired: int | None = None
    before: int = 0
    started: float = field(default_factory=time.time)
    ended: float | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def end(self, status: str, message: str) -> Activity:
        """Set its final status and return it."""
        self.status, self.message, self.ended = status, message, time.time()
        return self

    def as_description(self) -> Description:
        """As DescribeScalingActivities shows it."""
        return {
            "ActivityId": self.id,
            **self.key.as_description(),
            "Description": self.description,
            "Cause": self.cause,
            "StartTime": self.started,
            "StatusCode": self.status,
            "StatusMessage": self.message,
            **present_fields(EndTime=self.ended),
        }
