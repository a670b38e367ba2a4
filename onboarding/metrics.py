"""Metrics that SageMaker publishes of endpoints, and alarms and scaling by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

INVOCATIONS, HOST = "AWS/SageMaker", "/aws/sagemaker/Endpoints"
Comparison = Literal["GreaterThanThreshold", "GreaterThanOrEqualToThreshold", "LessThanThreshold"]
OVER: Comparison = "GreaterThanThreshold"
AT_LEAST: Comparison = "GreaterThanOrEqualToThreshold"
UNDER: Comparison = "LessThanThreshold"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One statistic of one metric, over periods in seconds; `dimensions` are (name, value)."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str
    period: int = 60


@dataclass(frozen=True, kw_only=True)
class MetricMath:
    """An expression over metrics by id, all of one period, and what its value is called."""

    expression: str
    metrics: Mapping[str, Metric]
    label: str = ""


@dataclass(frozen=True)
class VariantMetrics:
    """The metrics of one variant of an endpoint, by SageMaker's names of both."""

    endpoint: str
    variant: str

    def invocations(self, name: str, statistic: str, period: int = 60) -> Metric:
        """Return a metric of the requests that SageMaker passed on."""
        dimensions = (*self._endpoint, ("VariantName", self.variant))
        return Metric(
            namespace=INVOCATIONS,
            name=name,
            dimensions=dimensions,
            statistic=statistic,
            period=period,
        )

    def host(self, name: str, statistic: str) -> Metric:
        """Return a metric of the instances."""
        return replace(self.invocations(name, statistic), namespace=HOST)

    def queue(self, name: str, statistic: str) -> Metric:
        """Return a metric that is published of the endpoint as a whole: those of a queue."""
        return replace(self.invocations(name, statistic), dimensions=self._endpoint)

    def component(self, name: str, statistic: str, period: int = 60) -> Metric:
        """Return a metric of the inference component, which is named as its endpoint."""
        own = (("InferenceComponentName", self.endpoint),)
        return replace(self.invocations(name, statistic, period), dimensions=own)

    @property
    def _endpoint(self) -> tuple[tuple[str, str], ...]:
        return (("EndpointName", self.endpoint),)


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """One alarm of an endpoint.

    It goes to ALARM when `points` of the last `periods` values breach the threshold. `explanation`
    says what is wrong with `subject`, and by what measure.
    """

    id: str
    """Its construct's, and its logical id in the stack of an endpoint."""
    kind: str
    """What its name ends in, before the variant. No kind ends in a hyphen and another kind."""
    name: str
    """Its own among those of every endpoint in the account and region."""
    subject: str
    explanation: str
    variant: str
    watched: Metric | MetricMath
    threshold: float = 0.0
    comparison: Comparison = OVER
    points: int = 3
    periods: int = 5
    missing: Literal["notBreaching", "breaching"] = "notBreaching"
    rolls_back: bool = False
    """Whether it takes a new version back during a rollout."""


@dataclass(frozen=True, kw_only=True)
class TargetTracking:
    """A scaling policy that holds a metric's average at a value, which `derivation` explains.

    `metric` is one of Application Auto Scaling's predefined ones by its name, or another one.
    """

    id: str
    name: str
    metric: str | Metric
    value: float
    derivation: str
    scale_out_seconds: int
    scale_in_seconds: int


@dataclass(frozen=True, kw_only=True)
class FromZero:
    """How the first instance or copy comes: a step of one, once a metric of 0 or 1 has been 1.

    `fault` says what that means; `periods` in a row, of which missing ones count as `missing`.
    """

    policy_id: str
    alarm_id: str
    alarm_name: str
    unit: Literal["instance", "copy"]
    fault: str
    metric: Metric
    periods: int
    missing: Literal["missing", "notBreaching"]
    cooldown_seconds: int


@dataclass(frozen=True, kw_only=True)
class ScheduledBounds:
    """Bounds from a moment on, by an expression of Application Auto Scaling; no zone is UTC."""

    schedule: str
    timezone: str | None
    least: int
    most: int


Dimension = Literal["variant:DesiredInstanceCount", "inference-component:DesiredCopyCount"]


@dataclass(frozen=True, kw_only=True)
class ScaledCount:
    """What Application Auto Scaling moves: instances of a variant, or copies of a component.

    `name` begins the names of its policies; it stays between `least` and `most`.
    """

    id: str
    name: str
    resource_id: str
    dimension: Dimension
    least: int
    most: int
    schedule: tuple[ScheduledBounds, ...] = ()
    tracking: tuple[TargetTracking, ...] = ()
    from_zero: FromZero | None = None
