"""One alarm before it is CloudFormation: what is watched, when it trips, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding import arns, names
from onboarding.deployment import VARIANT, DeployedEndpoint, Variant
from onboarding.metrics import INVOCATIONS
from stacks.scaling.resources import dimensions
from stacks.scaling.targets import variant_id
from stacks.template import Properties, Resources

OVER, AT_LEAST, UNDER = "GreaterThanThreshold", "GreaterThanOrEqualToThreshold", "LessThanThreshold"
MICROSECONDS_A_MILLISECOND, MICROSECONDS_A_SECOND = 1000, 1_000_000
ROLLBACK_ORDER = (
    "ServerErrors",
    "NoAnswers",
    "StreamErrors",
    "FirstToken",
    "Latency",
    "ClientErrors",
)
"""SageMaker watches ten alarms: with many variants those whose parts are first here."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One statistic of one metric, over periods in seconds."""

    namespace: str
    name: str
    dimensions: list[dict[str, str]]
    statistic: str
    period: int = 60

    @property
    def identity(self) -> dict[str, Any]:
        """Namespace, name and dimensions as CloudFormation spells them."""
        return {"Namespace": self.namespace, "MetricName": self.name, "Dimensions": self.dimensions}


@dataclass(frozen=True, kw_only=True)
class Computed:
    """Metric math: an expression over metrics by id, and what its value is called."""

    expression: str
    label: str
    metrics: Mapping[str, Metric]


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """One alarm of a variant, or of the endpoint as a whole where `variant` is None.

    It goes to ALARM when `points` of the last `periods` values breach the threshold; `explanation`
    says what is wrong, and by what measure.
    """

    part: str
    """Its logical id, or what that begins with."""
    kind: str
    """What its name ends in. No kind ends in a hyphen and another kind: see `alarm_name`."""
    variant: Variant | None
    watched: Metric | Computed
    threshold: float
    comparison: str = OVER
    points: int = 3
    periods: int = 5
    missing: str = "notBreaching"
    explanation: str
    rolls_back: bool = False
    """Whether it takes a new version back during a rollout."""


def variant_metric(
    deployment: DeployedEndpoint,
    variant: str,
    name: str,
    statistic: str,
    *,
    namespace: str = INVOCATIONS,
    period: int = 60,
) -> Metric:
    """Return one statistic of a metric of a variant, by its name."""
    return Metric(
        namespace=namespace,
        name=name,
        dimensions=dimensions(deployment, variant),
        statistic=statistic,
        period=period,
    )


def alarm_name(deployment: DeployedEndpoint, kind: str, variant: Variant | None = None) -> str:
    """Return the alarm's name, its own among those of every endpoint in the account and region.

    A joined variant stands behind two hyphens, which no name has in a row.
    """
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    own = variant is None or variant.name == VARIANT
    return f"{endpoint}-{kind}" if variant is None or own else f"{endpoint}-{kind}--{variant.name}"


def alarm_arn(deployment: DeployedEndpoint, alarm: Alarm) -> str:
    """Return what a dashboard calls the alarm."""
    name = alarm_name(deployment, alarm.kind, alarm.variant)
    return arns.arn(deployment.environment, "cloudwatch", f"alarm:{name}")


def logical_id(alarm: Alarm) -> str:
    """The own variant's is the part alone, so that it never changes."""
    return alarm.part if alarm.variant is None else variant_id(alarm.variant, alarm.part)


def rollback_alarms(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Return those that take a new version back, the gravest first."""
    found = [alarm for alarm in alarms if alarm.rolls_back]
    return sorted(found, key=lambda alarm: ROLLBACK_ORDER.index(alarm.part))


def alarm_resources(
    alarms: Mapping[str, Properties], rollback: Sequence[str], waits_for: str
) -> Resources:
    """Return alarms as resources.

    Those that take a rollout back are there before it; the others wait for what they watch, so that
    none trips before there is an instance.
    """
    return {
        alarm: {
            "Type": "AWS::CloudWatch::Alarm",
            **({} if alarm in rollback else {"DependsOn": [waits_for]}),
            "Properties": content,
        }
        for alarm, content in alarms.items()
    }


def percent(share: float) -> str:
    """Return a share for people."""
    return f"{share * 100:.3g} %"


def properties(deployment: DeployedEndpoint, alarm: Alarm) -> dict[str, Any]:
    """Return an `AWS::CloudWatch::Alarm` that notifies the environment's topic."""
    subject = names.endpoint_name(deployment.environment, deployment.name)
    if alarm.variant is not None and alarm.variant.name != VARIANT:
        subject += f", {alarm.variant.name}"
    return {
        "AlarmName": alarm_name(deployment, alarm.kind, alarm.variant),
        "AlarmDescription": f"{subject}: {alarm.explanation}",
        **_metric_properties(alarm.watched),
        "Threshold": alarm.threshold,
        "ComparisonOperator": alarm.comparison,
        "EvaluationPeriods": alarm.periods,
        "DatapointsToAlarm": alarm.points,
        "TreatMissingData": alarm.missing,
        "AlarmActions": [arns.alarm_topic(deployment.environment)],
    }


def _metric_properties(watched: Metric | Computed) -> dict[str, Any]:
    if isinstance(watched, Metric):
        is_percentile = watched.statistic.startswith("p")
        statistic = {"ExtendedStatistic" if is_percentile else "Statistic": watched.statistic}
        return {**watched.identity, **statistic, "Period": watched.period}
    expression = {"Expression": watched.expression, "Label": watched.label}
    queries: list[dict[str, Any]] = [{"Id": "watched", **expression, "ReturnData": True}]
    for name, metric in watched.metrics.items():
        stat = {"Metric": metric.identity, "Period": metric.period, "Stat": metric.statistic}
        queries.append({"Id": name, "MetricStat": stat, "ReturnData": False})
    return {"Metrics": queries}
