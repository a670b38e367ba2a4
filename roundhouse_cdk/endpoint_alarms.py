"""Alarms of an endpoint, which tell a topic when they ring and when all is well again.

Typed L1: of `cw.Alarm`, its metrics and its actions each is a call to Node, which is most of the
time that an endpoint's synthesis takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_cloudwatch as cw
from aws_cdk import aws_sns as sns
from constructs import Construct

from onboarding.metrics import Alarm, Metric, MetricMath

QUERY = cw.CfnAlarm.MetricDataQueryProperty


@dataclass(frozen=True, kw_only=True)
class EndpointAlarmsProps:
    """`alarms` of one endpoint, whose ids differ; `topic` is told of each."""

    alarms: Sequence[Alarm]
    topic: sns.ITopic


class EndpointAlarms(Construct):
    """The alarms of an endpoint.

    `alarms` are by id; a composite alarm takes one by `cw.Alarm.from_alarm_arn(…, alarm.attr_arn)`.
    Those in `rollback` must be there before a rollout that they take back:
    `endpoint.node.add_dependency(alarms.rollback)`. The `others` wait for what they watch, so that
    none rings before there is an instance: `alarms.others.node.add_dependency(endpoint)`.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: EndpointAlarmsProps) -> None:
        super().__init__(scope, construct_id)
        self.rollback, self.others = Construct(self, "Rollback"), Construct(self, "Others")
        topics = [props.topic.topic_arn]
        self.alarms = {
            alarm.id: cw.CfnAlarm(
                self.rollback if alarm.rolls_back else self.others,
                alarm.id,
                alarm_name=alarm.name,
                alarm_description=f"{alarm.subject}: {alarm.explanation}",
                threshold=alarm.threshold,
                comparison_operator=alarm.comparison,
                datapoints_to_alarm=alarm.points,
                evaluation_periods=alarm.periods,
                treat_missing_data=alarm.missing,
                alarm_actions=topics,
                # PagerDuty and Opsgenie close the incident that the alarm opened.
                ok_actions=topics,
                **(
                    metric_properties(alarm.watched)
                    if isinstance(alarm.watched, Metric)
                    else {"metrics": list(_queries(alarm.watched))}
                ),
            )
            for alarm in props.alarms
        }


def metric_properties(metric: Metric) -> dict[str, Any]:
    """Return the properties of an alarm on one metric."""
    is_percentile = metric.statistic.startswith("p")
    return {
        "namespace": metric.namespace,
        "metric_name": metric.name,
        "dimensions": _dimensions(metric),
        "period": metric.period,
        "extended_statistic" if is_percentile else "statistic": metric.statistic,
    }


def _queries(watched: MetricMath) -> Iterator[cw.CfnAlarm.MetricDataQueryProperty]:
    """Yield an expression, and the metrics that it alone uses."""
    yield QUERY(id="expr_1", expression=watched.expression, label=watched.label, return_data=True)
    for name, metric in watched.metrics.items():
        of = cw.CfnAlarm.MetricProperty(
            namespace=metric.namespace, metric_name=metric.name, dimensions=_dimensions(metric)
        )
        stat = cw.CfnAlarm.MetricStatProperty(
            metric=of, period=metric.period, stat=metric.statistic
        )
        yield QUERY(id=name, metric_stat=stat, return_data=False)


def _dimensions(metric: Metric) -> list[cw.CfnAlarm.DimensionProperty]:
    return [
        cw.CfnAlarm.DimensionProperty(name=name, value=value) for name, value in metric.dimensions
    ]
