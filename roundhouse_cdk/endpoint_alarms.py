"""Alarms of an endpoint, which tell a topic when they ring and when all is well again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cw
from aws_cdk import aws_sns as sns
from aws_cdk.aws_cloudwatch_actions import SnsAction
from constructs import Construct

from onboarding.metrics import AT_LEAST, OVER, UNDER, Alarm, Metric, MetricMath

COMPARISONS = {
    OVER: cw.ComparisonOperator.GREATER_THAN_THRESHOLD,
    AT_LEAST: cw.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
    UNDER: cw.ComparisonOperator.LESS_THAN_THRESHOLD,
}
MISSING = {
    "notBreaching": cw.TreatMissingData.NOT_BREACHING,
    "breaching": cw.TreatMissingData.BREACHING,
}


@dataclass(frozen=True, kw_only=True)
class EndpointAlarmsProps:
    """`alarms` of one endpoint, whose ids differ; `topic` is told of each."""

    alarms: Sequence[Alarm]
    topic: sns.ITopic


class EndpointAlarms(Construct):
    """The alarms of an endpoint.

    `alarms` are by id. Those in `rollback` must be there before a rollout that they take back:
    `endpoint.node.add_dependency(alarms.rollback)`. The `others` wait for what they watch, so that
    none rings before there is an instance: `alarms.others.node.add_dependency(endpoint)`.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: EndpointAlarmsProps) -> None:
        super().__init__(scope, construct_id)
        self.rollback, self.others = Construct(self, "Rollback"), Construct(self, "Others")
        action = SnsAction(props.topic)
        alarms: dict[str, cw.Alarm] = {}
        for alarm in props.alarms:
            alarms[alarm.id] = self._add(alarm)
            alarms[alarm.id].add_alarm_action(action)
            # PagerDuty and Opsgenie close the incident that the alarm opened.
            alarms[alarm.id].add_ok_action(action)
        self.alarms: Mapping[str, cw.Alarm] = alarms

    def _add(self, alarm: Alarm) -> cw.Alarm:
        return cw.Alarm(
            self.rollback if alarm.rolls_back else self.others,
            alarm.id,
            alarm_name=alarm.name,
            alarm_description=f"{alarm.subject}: {alarm.explanation}",
            metric=cdk_metric(alarm.watched),
            threshold=alarm.threshold,
            comparison_operator=COMPARISONS[alarm.comparison],
            datapoints_to_alarm=alarm.points,
            evaluation_periods=alarm.periods,
            treat_missing_data=MISSING[alarm.missing],
        )


def cdk_metric(watched: Metric | MetricMath, label: str | None = None) -> cw.IMetric:
    """Return a metric, or an expression and the metrics that it alone uses.

    `label` names a metric in a graph; an expression has its own.
    """
    if isinstance(watched, Metric):
        return _metric(watched, label)
    periods = {metric.period for metric in watched.metrics.values()} or {60}
    return cw.MathExpression(
        expression=watched.expression,
        label=watched.label or label,
        using_metrics={name: _metric(metric) for name, metric in watched.metrics.items()},
        period=seconds(max(periods)),
    )


@cache
def _metric(metric: Metric, label: str | None = None) -> cw.Metric:
    """Return a metric, once: alarms of an endpoint share many."""
    return cw.Metric(
        namespace=metric.namespace,
        metric_name=metric.name,
        dimensions_map=dict(metric.dimensions),
        statistic=metric.statistic,
        period=seconds(metric.period),
        label=label,
    )


@cache
def seconds(count: int) -> Duration:
    """Return a duration, once."""
    return Duration.seconds(count)
