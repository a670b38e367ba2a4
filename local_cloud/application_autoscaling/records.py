"""Scalable targets, their policies, and the changes of capacity that are under way."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Description = dict[str, Any]
SUSPENSIONS = (
    "DynamicScalingInSuspended",
    "DynamicScalingOutSuspended",
    "ScheduledScalingSuspended",
)
TRACKING, STEP = "TargetTrackingScaling", "StepScaling"
CONFIGURATIONS = {kind: f"{kind}PolicyConfiguration" for kind in (TRACKING, STEP)}


NAMESPACE = "sagemaker"
DIMENSION = "sagemaker:variant:DesiredInstanceCount"
COMPONENT_DIMENSION = "sagemaker:inference-component:DesiredCopyCount"
RESOURCES = {
    DIMENSION: re.compile(r"endpoint/[^/]+/variant/[^/]+"),
    COMPONENT_DIMENSION: re.compile(r"inference-component/[^/]+"),
}
"""The form of a resource id, by scalable dimension."""
VARIANT_METRICS = {
    "SageMakerVariantInvocationsPerInstance": ("InvocationsPerInstance", "Sum", 60),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": (
        "ConcurrentRequestsPerModel",
        "Average",
        10,
    ),
}
COMPONENT_METRICS = {
    "SageMakerInferenceComponentInvocationsPerCopy": ("InvocationsPerCopy", "Sum", 60),
    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution": (
        "ConcurrentRequestsPerCopy",
        "Average",
        10,
    ),
}
PREDEFINED = {DIMENSION: VARIANT_METRICS, COMPONENT_DIMENSION: COMPONENT_METRICS}
"""The metric, statistic and period that a predefined metric tracks, by scalable dimension."""


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

    def clamp(self, desired: int) -> int:
        """Return a capacity within its bounds."""
        return min(max(desired, self.low), self.high)

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


@dataclass(frozen=True, kw_only=True)
class Activity:
    """A change of capacity that was requested, until its resource has settled."""

    key: Key
    desired: int
    before: int
