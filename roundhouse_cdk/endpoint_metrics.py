"""What an endpoint's metrics set off: alarms, and scaling of its instances or copies.

Alarms are typed L1: of `cw.Alarm`, its metrics and its actions each is a call to Node, which is
most of the time that an endpoint's synthesis takes. So is scaling: the CDK's own `ScalableTarget`
would make a role, where Application Auto Scaling has one for SageMaker that is linked to the
service.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aws_cdk import CfnResource
from aws_cdk import aws_applicationautoscaling as appscaling
from aws_cdk import aws_cloudwatch as cw
from aws_cdk import aws_sns as sns
from constructs import Construct

from onboarding.metrics import (
    AT_LEAST,
    Alarm,
    FromZero,
    Metric,
    MetricMath,
    ScaledCount,
    TargetTracking,
)

Dimensions = tuple[tuple[str, str], ...]
QUERY = cw.CfnAlarm.MetricDataQueryProperty
POLICY = appscaling.CfnScalingPolicy
STEP = POLICY.StepScalingPolicyConfigurationProperty
TRACKING = POLICY.TargetTrackingScalingPolicyConfigurationProperty


@dataclass(frozen=True, kw_only=True)
class EndpointAlarmsProps:
    """`alarms` of one endpoint, whose ids differ; `topic` is told of each."""

    alarms: Sequence[Alarm]
    topic: sns.ITopic


class EndpointAlarms(Construct):
    """The alarms of an endpoint.

    `alarms` are by id; a composite alarm takes one by `cw.Alarm.from_alarm_arn(…, alarm.attr_arn)`.
    Those in `rollback` must be there before a rollout that they take back:
    `endpoint.node.add_dependency(*alarms.rollback)`. The `others` wait for what they watch, so that
    none rings before there is an instance: `alarms.others.node.add_dependency(endpoint)`.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: EndpointAlarmsProps) -> None:
        super().__init__(scope, construct_id)
        self.alarms: dict[str, cw.CfnAlarm] = {}
        topic_arn, alarms = props.topic.topic_arn, props.alarms
        self.rollback = [
            self._alarm(self, alarm, topic_arn) for alarm in alarms if alarm.rolls_back
        ]
        # The CDK leaves this id out of logical ids.
        self.others = Construct(self, "Default")
        for alarm in alarms:
            if not alarm.rolls_back:
                self._alarm(self.others, alarm, topic_arn)

    def _alarm(self, scope: Construct, alarm: Alarm, topic_arn: str) -> cw.CfnAlarm:
        self.alarms[alarm.id] = cw.CfnAlarm(
            scope,
            alarm.id,
            alarm_name=alarm.name,
            alarm_description=f"{alarm.subject}: {alarm.explanation}",
            threshold=alarm.threshold,
            comparison_operator=alarm.comparison,
            datapoints_to_alarm=alarm.points,
            evaluation_periods=alarm.periods,
            treat_missing_data=alarm.missing,
            alarm_actions=[topic_arn],
            # PagerDuty and Opsgenie close the incident that the alarm opened.
            ok_actions=[topic_arn],
            **(
                metric_properties(alarm.watched)
                if isinstance(alarm.watched, Metric)
                else {"metrics": list(_queries(alarm.watched))}
            ),
        )
        return self.alarms[alarm.id]


def metric_properties(metric: Metric) -> dict[str, Any]:
    """Return the properties of an alarm on one metric."""
    is_percentile = metric.statistic.startswith("p")
    return {
        "namespace": metric.namespace,
        "metric_name": metric.name,
        "dimensions": _dimensions(metric.dimensions),
        "period": metric.period,
        "extended_statistic" if is_percentile else "statistic": metric.statistic,
    }


def _queries(watched: MetricMath) -> Iterator[cw.CfnAlarm.MetricDataQueryProperty]:
    """Yield an expression, and the metrics that it alone uses."""
    yield QUERY(id="expr_1", expression=watched.expression, label=watched.label, return_data=True)
    for name, metric in watched.metrics.items():
        of = _metric(metric.namespace, metric.name, metric.dimensions)
        stat = cw.CfnAlarm.MetricStatProperty(
            metric=of, period=metric.period, stat=metric.statistic
        )
        yield QUERY(id=name, metric_stat=stat, return_data=False)


@lru_cache
def _metric(namespace: str, name: str, dimensions: Dimensions) -> cw.CfnAlarm.MetricProperty:
    """Return a metric, of which alarms of an endpoint watch several statistics."""
    of = _dimensions(dimensions)
    return cw.CfnAlarm.MetricProperty(namespace=namespace, metric_name=name, dimensions=of)


@lru_cache
def _dimensions(dimensions: Dimensions) -> list[cw.CfnAlarm.DimensionProperty]:
    return [cw.CfnAlarm.DimensionProperty(name=name, value=value) for name, value in dimensions]


@dataclass(frozen=True, kw_only=True)
class EndpointScalingProps:
    """`counts` of one endpoint; `server` is the endpoint or component that must be there first."""

    counts: Sequence[ScaledCount]
    server: CfnResource


class EndpointScaling(Construct):
    """The scalable targets of an endpoint, their policies, and the alarms that start from zero.

    `targets` are by the ids of the counts; `resources` are targets, policies and alarms, by id.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: EndpointScalingProps) -> None:
        super().__init__(scope, construct_id)
        self.targets: dict[str, appscaling.CfnScalableTarget] = {}
        self.resources: dict[str, CfnResource] = {}
        for count in props.counts:
            target = self.targets[count.id] = self.resources[count.id] = self._target(count)
            target.add_resource_dependency(props.server)
            for tracking in count.tracking:
                self._track(count, tracking)
            if count.from_zero is not None:
                self._start_from_zero(count, count.from_zero)

    def _target(self, count: ScaledCount) -> appscaling.CfnScalableTarget:
        target = appscaling.CfnScalableTarget
        actions = [
            target.ScheduledActionProperty(
                scheduled_action_name=f"floor-{number}",
                schedule=bounds.schedule,
                timezone=bounds.timezone,
                scalable_target_action=target.ScalableTargetActionProperty(
                    min_capacity=bounds.least, max_capacity=bounds.most
                ),
            )
            for number, bounds in enumerate(count.schedule, 1)
        ]
        return target(
            self,
            count.id,
            service_namespace="sagemaker",
            scalable_dimension=f"sagemaker:{count.dimension}",
            resource_id=count.resource_id,
            min_capacity=count.least,
            max_capacity=count.most,
            scheduled_actions=actions or None,
        )

    def _track(self, count: ScaledCount, tracking: TargetTracking) -> None:
        metric, customized, predefined = tracking.metric, None, None
        if isinstance(metric, Metric):
            dimension = POLICY.MetricDimensionProperty
            customized = POLICY.CustomizedMetricSpecificationProperty(
                namespace=metric.namespace,
                metric_name=metric.name,
                dimensions=[dimension(name=name, value=value) for name, value in metric.dimensions],
                statistic=metric.statistic,
            )
        else:
            predefined = POLICY.PredefinedMetricSpecificationProperty(predefined_metric_type=metric)
        configuration = TRACKING(
            target_value=tracking.value,
            scale_out_cooldown=tracking.scale_out_seconds,
            scale_in_cooldown=tracking.scale_in_seconds,
            predefined_metric_specification=predefined,
            customized_metric_specification=customized,
        )
        policy = self._policy(count, tracking.id, tracking.name, configuration)
        policy.add_metadata("Derivation", {"TargetValue": tracking.derivation})

    def _start_from_zero(self, count: ScaledCount, start: FromZero) -> None:
        configuration = STEP(
            adjustment_type="ChangeInCapacity",
            metric_aggregation_type=start.metric.statistic,
            cooldown=start.cooldown_seconds,
            step_adjustments=[
                POLICY.StepAdjustmentProperty(metric_interval_lower_bound=0, scaling_adjustment=1)
            ],
        )
        policy = self._policy(count, start.policy_id, "from-zero", configuration)
        policy.add_metadata(
            "Derivation", {"ScalingAdjustment": f"one {start.unit}, once {start.fault}"}
        )
        self.resources[start.alarm_id] = cw.CfnAlarm(
            self,
            start.alarm_id,
            alarm_name=start.alarm_name,
            alarm_description=f"{start.alarm_name}: {start.fault}; adds one",
            evaluation_periods=start.periods,
            datapoints_to_alarm=start.periods,
            threshold=1,
            comparison_operator=AT_LEAST,
            treat_missing_data=start.missing,
            alarm_actions=[policy.ref],
            **metric_properties(start.metric),
        )

    def _policy(
        self, count: ScaledCount, policy_id: str, name: str, configuration: TRACKING | STEP
    ) -> appscaling.CfnScalingPolicy:
        step = configuration if isinstance(configuration, STEP) else None
        policy = POLICY(
            self,
            policy_id,
            policy_name=f"{count.name}-{name}",
            policy_type="TargetTrackingScaling" if step is None else "StepScaling",
            service_namespace="sagemaker",
            scalable_dimension=f"sagemaker:{count.dimension}",
            resource_id=count.resource_id,
            step_scaling_policy_configuration=step,
            target_tracking_scaling_policy_configuration=(
                configuration if isinstance(configuration, TRACKING) else None
            ),
        )
        policy.add_resource_dependency(self.targets[count.id])
        self.resources[policy_id] = policy
        return policy
