"""One alarm before it is CloudFormation: what is watched, when it trips, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, Deployment, Variant
from stacks.access import arns

INVOCATIONS, HOST = "AWS/SageMaker", "/aws/sagemaker/Endpoints"
OVER, AT_LEAST, UNDER = "GreaterThanThreshold", "GreaterThanOrEqualToThreshold", "LessThanThreshold"
MICROSECONDS_A_MILLISECOND, MICROSECONDS_A_SECOND = 1000, 1_000_000
Dimensions = list[dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One statistic of one metric, over periods in seconds."""

    namespace: str
    name: str
    dimensions: Dimensions
    statistic: str
    period: int = 60


@dataclass(frozen=True, kw_only=True)
class Computed:
    """Metric math: an expression over metrics by id, and what its value is called."""

    expression: str
    label: str
    metrics: Mapping[str, Metric]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """When an alarm goes to ALARM: `points` of the last `periods` values breach the threshold.

    `missing` says how missing data is treated.
    """

    threshold: float
    comparison: str = OVER
    points: int = 3
    periods: int = 5
    missing: str = "notBreaching"


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """One alarm of a variant, or of the endpoint as a whole.

    `explanation` says what is wrong, and by what measure.
    """

    part: str
    """Its logical id, or what that begins with."""
    kind: str
    """What its name ends in. No kind ends in a hyphen and another kind: see `alarm_name`."""
    variant: Variant | None
    watched: Metric | Computed
    condition: Condition
    explanation: str
    rolls_back: bool = False
    """Whether it takes a new version back during a rollout."""


def alarm_name(deployment: Deployment, kind: str, variant: Variant | None = None) -> str:
    """The alarm's name in its account and region.

    All endpoints' alarms share one room of names. A joined variant stands behind two hyphens, which
    no name has in a row.
    """
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    own = variant is None or variant.name == VARIANT
    return f"{endpoint}-{kind}" if variant is None or own else f"{endpoint}-{kind}--{variant.name}"


def alarm_arn(deployment: Deployment, kind: str, variant: Variant | None = None) -> str:
    """What a dashboard calls the alarm."""
    return arns.arn(
        deployment.environment, "cloudwatch", f"alarm:{alarm_name(deployment, kind, variant)}"
    )


def percent(share: float) -> str:
    """A share for people."""
    return f"{share * 100:.3g} %"


def properties(deployment: Deployment, alarm: Alarm) -> dict[str, Any]:
    """Properties of an `AWS::CloudWatch::Alarm` that tells the environment's topic."""
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    where = (
        endpoint
        if alarm.variant is None or alarm.variant.name == VARIANT
        else f"{endpoint}, {alarm.variant.name}"
    )
    topic, condition = arns.alarm_topic(deployment.environment), alarm.condition
    return {
        "AlarmName": alarm_name(deployment, alarm.kind, alarm.variant),
        "AlarmDescription": f"{where}: {alarm.explanation}",
        **_metric_properties(alarm.watched),
        "Threshold": condition.threshold,
        "ComparisonOperator": condition.comparison,
        "EvaluationPeriods": condition.periods,
        "DatapointsToAlarm": condition.points,
        "TreatMissingData": condition.missing,
        "AlarmActions": [topic],
    }


def _metric_properties(watched: Metric | Computed) -> dict[str, Any]:
    if isinstance(watched, Metric):
        is_percentile = watched.statistic.startswith("p")
        return {
            **_metric_identity(watched),
            "ExtendedStatistic" if is_percentile else "Statistic": watched.statistic,
            "Period": watched.period,
        }
    returned = {
        "Id": "watched",
        "Expression": watched.expression,
        "Label": watched.label,
        "ReturnData": True,
    }
    return {
        "Metrics": [returned, *(_query(name, metric) for name, metric in watched.metrics.items())]
    }


def _query(name: str, metric: Metric) -> dict[str, Any]:
    stat = {"Metric": _metric_identity(metric), "Period": metric.period, "Stat": metric.statistic}
    return {"Id": name, "MetricStat": stat, "ReturnData": False}


def _metric_identity(metric: Metric) -> dict[str, Any]:
    return {
        "Namespace": metric.namespace,
        "MetricName": metric.name,
        "Dimensions": metric.dimensions,
    }
