"""Scalable targets and their policies; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from local_cloud.protocol.errors import AwsError

SUSPENSIONS = tuple(
    f"{kind}Suspended" for kind in ("DynamicScalingIn", "DynamicScalingOut", "ScheduledScaling")
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


class Key(NamedTuple):
    """A scalable dimension of a resource."""

    namespace: str
    resource_id: str
    dimension: str

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
        values = {"EndpointName": self.endpoint, "VariantName": self.variant}
        if self.component is not None:
            values = {"InferenceComponentName": self.component}
        return [{"Name": name, "Value": value} for name, value in values.items()]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of capacity; `at`, when it was complete, is in seconds since the epoch."""

    before: int
    after: int
    at: float


@dataclass(kw_only=True)
class Target:
    """A scalable target: its bounds, its suspensions, and its changes of capacity.

    `changing` is under way, `last` is complete.
    """

    key: Key
    arn: str
    low: int
    high: int
    suspended: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(SUSPENSIONS, False))
    changing: Change | None = None
    last: Change | None = None

    def clamp(self, desired: int) -> int:
        """Return a capacity within its bounds."""
        return min(max(desired, self.low), self.high)

    def as_description(self) -> dict[str, Any]:
        """As DescribeScalableTargets shows it."""
        return {
            "ServiceNamespace": self.key.namespace,
            "ResourceId": self.key.resource_id,
            "ScalableDimension": self.key.dimension,
            "MinCapacity": self.low,
            "MaxCapacity": self.high,
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
    alarms: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_tracking(self) -> bool:
        """Whether it holds a metric at a target."""
        return self.kind == TRACKING

    @property
    def scales_in(self) -> bool:
        """Whether it may remove instances."""
        return not (self.is_tracking and self.configuration.get("DisableScaleIn"))


def not_found(what: str, key: Key, name: str = "") -> AwsError:
    """Return the refusal of a record that does not exist."""
    message = (
        f"{what} for service namespace: {key.namespace}, resource ID: {key.resource_id}, scalable "
        f"dimension: {key.dimension}{name}"
    )
    return AwsError("ObjectNotFoundException", message)
