"""Alarms of an endpoint, which tell a topic when they ring and when all is well again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cw
from aws_cdk import aws_sns as sns
from aws_cdk.aws_cloudwatch_actions import SnsAction
from constructs import Construct

from onboarding.metrics import AT_LEAST, OVER, UNDER, Alarm, PromQL
from roundhouse_cdk.watched_metrics import cdk_metric, seconds

COMPARISONS = {
    OVER: cw.ComparisonOperator.GREATER_THAN_THRESHOLD,
    AT_LEAST: cw.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
    UNDER: cw.ComparisonOperator.LESS_THAN_THRESHOLD,
}
MISSING = {
    "notBreaching": cw.TreatMissingData.NOT_BREACHING,
    "breaching": cw.TreatMissingData.BREACHING,
}
EVALUATION_SECONDS, PENDING_SECONDS, RECOVERY_SECONDS = 60, 180, 300
"""How often a query runs, and how long a series is over or under its limit until the state moves.
"""


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
        alarms: dict[str, cw.Alarm | cw.PromQLAlarm] = {}
        for alarm in props.alarms:
            alarms[alarm.id] = self._add(alarm)
            alarms[alarm.id].add_alarm_action(action)
            # PagerDuty and Opsgenie close the incident that the alarm opened.
            alarms[alarm.id].add_ok_action(action)
        self.alarms: Mapping[str, cw.Alarm | cw.PromQLAlarm] = alarms

    def _add(self, alarm: Alarm) -> cw.Alarm | cw.PromQLAlarm:
        scope = self.rollback if alarm.rolls_back else self.others
        description = f"{alarm.subject}: {alarm.explanation}"
        if isinstance(alarm.watched, PromQL):
            return cw.PromQLAlarm(
                scope,
                alarm.id,
                alarm_name=alarm.name,
                alarm_description=description,
                query=alarm.watched.query,
                evaluation_interval=seconds(EVALUATION_SECONDS),
                pending_period=seconds(PENDING_SECONDS),
                recovery_period=seconds(RECOVERY_SECONDS),
            )
        return cw.Alarm(
            scope,
            alarm.id,
            alarm_name=alarm.name,
            alarm_description=description,
            metric=cdk_metric(alarm.watched),
            threshold=alarm.threshold,
            comparison_operator=COMPARISONS[alarm.comparison],
            datapoints_to_alarm=alarm.points,
            evaluation_periods=alarm.periods,
            treat_missing_data=MISSING[alarm.missing],
        )
