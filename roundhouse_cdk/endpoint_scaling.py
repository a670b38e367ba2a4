"""Application Auto Scaling of an endpoint's instances, or of an inference component's copies.

The CDK's own `ScalableTarget` would make a role, where Application Auto Scaling has one for
SageMaker that is linked to the service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import CfnResource
from aws_cdk import aws_applicationautoscaling as appscaling
from aws_cdk import aws_cloudwatch as cw
from constructs import Construct, IConstruct

from onboarding.metrics import AT_LEAST, FromZero, Metric, ScaledCount, TargetTracking
from roundhouse_cdk.endpoint_alarms import metric_properties

POLICY = appscaling.CfnScalingPolicy
STEP = POLICY.StepScalingPolicyConfigurationProperty
TRACKING = POLICY.TargetTrackingScalingPolicyConfigurationProperty


@dataclass(frozen=True, kw_only=True)
class EndpointScalingProps:
    """`counts` of one endpoint; `server` is the endpoint or component that must be there first."""

    counts: Sequence[ScaledCount]
    server: IConstruct


class EndpointScaling(Construct):
    """The scalable targets of an endpoint, their policies, and the alarms that start from zero.

    `targets` are by the ids of the counts; `resources` are targets, policies and alarms, by id.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: EndpointScalingProps) -> None:
        super().__init__(scope, construct_id)
        self.targets = {count.id: self._target(count) for count in props.counts}
        self.resources: dict[str, CfnResource] = {**self.targets}
        for count in props.counts:
            self.targets[count.id].node.add_dependency(props.server)
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
            customized = POLICY.CustomizedMetricSpecificationProperty(
                namespace=metric.namespace,
                metric_name=metric.name,
                dimensions=[
                    POLICY.MetricDimensionProperty(name=name, value=value)
                    for name, value in metric.dimensions
                ],
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
