"""CloudFormation resources of what scales, by logical id, with derivations.

Sources: SageMaker developer guide, "Autoscale an asynchronous endpoint"; of copies AWS's notebook
scale_down_to_zero of sagemaker-genai-hosting-examples (step policy, alarm).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, DeployedEndpoint, Deployment, Variant
from onboarding.hosting_spec import ScalingSpec, ScheduledFloorSpec
from onboarding.metrics import HOST, INVOCATIONS
from stacks.scaling.targets import (
    TargetValue,
    backlog_target,
    cpu_target,
    fewest,
    gpu_target,
    invocations_target,
    scaled_variants,
    variant_id,
)
from stacks.template import Resource, Resources

TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
Dimensions = list[dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """What Application Auto Scaling moves: the instances of a variant, or copies of a component.

    `name` begins the names of its policies; `target_id` is its scalable target's logical id.
    """

    name: str
    resource_id: str
    dimension: str = "variant:DesiredInstanceCount"
    target_id: str = "ScalableTarget"

    @property
    def properties(self) -> dict[str, str]:
        """How targets and policies name it."""
        return {
            "ServiceNamespace": "sagemaker",
            "ScalableDimension": f"sagemaker:{self.dimension}",
            "ResourceId": self.resource_id,
        }

    def target(self, waits_for: str, least: int, most: int) -> Resource:
        """Return its scalable target, which names no role.

        Application Auto Scaling makes its service-linked role for SageMaker by itself.
        """
        return {
            "Type": TARGET,
            "DependsOn": [waits_for],
            "Properties": {**self.properties, "MinCapacity": least, "MaxCapacity": most},
        }

    def tracking(
        self, name: str, target: TargetValue, metric: Mapping[str, Any], cooldowns: tuple[int, int]
    ) -> Resource:
        """Return the policy that holds a metric at a target; `cooldowns` are (out, in) seconds."""
        configuration = {
            "TargetValue": target.value,
            **metric,
            "ScaleOutCooldown": cooldowns[0],
            "ScaleInCooldown": cooldowns[1],
        }
        derivation = {"TargetValue": target.derivation}
        return self.policy(name, "TargetTracking", configuration, derivation)

    def policy(
        self,
        name: str,
        kind: str,
        configuration: Mapping[str, Any],
        derivation: Mapping[str, str],
    ) -> Resource:
        """Return a scaling policy with its derivation beside it."""
        return {
            "Type": POLICY,
            "DependsOn": [self.target_id],
            "Metadata": {"Derivation": derivation},
            "Properties": {
                "PolicyName": f"{self.name}-{name}",
                "PolicyType": f"{kind}Scaling",
                **self.properties,
                f"{kind}ScalingPolicyConfiguration": configuration,
            },
        }


@dataclass(frozen=True, kw_only=True)
class FromZero:
    """How the first instance or copy comes once a request finds none: a step, and its alarm."""

    unit: str
    fault: str
    metric: str
    statistic: str
    period: int
    periods: int
    missing: str
    cooldown_seconds: int

    def policy(self, scaled: Scaled) -> Resource:
        """Return the policy that adds one."""
        configuration = {
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": self.statistic,
            "Cooldown": self.cooldown_seconds,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        }
        derivation = {"ScalingAdjustment": f"one {self.unit}, once {self.fault}"}
        return scaled.policy("from-zero", "Step", configuration, derivation)

    def alarm(self, name: str, of: Dimensions, policy_id: str) -> Resource:
        """Return the alarm that starts it."""
        return {
            "Type": "AWS::CloudWatch::Alarm",
            "Properties": {
                "AlarmName": name,
                "AlarmDescription": f"{name}: {self.fault}; adds one",
                "Namespace": INVOCATIONS,
                "MetricName": self.metric,
                "Dimensions": of,
                "Statistic": self.statistic,
                "Period": self.period,
                "EvaluationPeriods": self.periods,
                "DatapointsToAlarm": self.periods,
                "Threshold": 1,
                "ComparisonOperator": "GreaterThanOrEqualToThreshold",
                "TreatMissingData": self.missing,
                "AlarmActions": [{"Ref": policy_id}],
            },
        }


QUEUE_FROM_ZERO = FromZero(
    unit="instance",
    fault="a request waits and there is no instance",
    metric="HasBacklogWithoutCapacity",
    statistic="Average",
    period=60,
    periods=2,
    missing="missing",
    cooldown_seconds=300,
)


def scaling_resources(deployment: Deployment) -> Resources:
    """Scalable target and policies of every production variant that scales.

    A shadow follows the count it began with.
    """
    policies = _at_once if deployment.endpoint.asynchronous is None else _asynchronous
    resources = scalable_targets(deployment)
    for variant in scaled_variants(deployment):
        resources |= policies(deployment, variant)
    return resources


def scalable_targets(deployment: Deployment) -> Resources:
    """Scalable target of every production variant that scales, whatever engines are built."""
    resources: Resources = {}
    for variant in scaled_variants(deployment):
        actions = [
            _scheduled_action(variant.scaling, floor, number)
            for number, floor in enumerate(variant.scaling.schedule, 1)
        ]
        target = _scalable_target(deployment, variant)
        if actions:
            target["Properties"]["ScheduledActions"] = actions
        resources[variant_id(variant, "ScalableTarget")] = target
    return resources


def held_counts(deployment: Deployment) -> Resources:
    """Scalable targets of variants with a fixed count beside a variant that scales.

    An update of such an endpoint retains every count, so that a changed fixed one would never take:
    the bounds of its target, which are that count, bring it there. The logical id is the one that
    the target has once the variant scales.
    """
    scaled = scaled_variants(deployment)
    return {
        variant_id(variant, "ScalableTarget"): _scalable_target(deployment, variant)
        for variant in (deployment.variants if scaled else ())
        if variant.role == "variant" and variant not in scaled
    }


def endpoint_dimensions(deployment: DeployedEndpoint) -> Dimensions:
    """The CloudWatch dimensions of an endpoint as a whole."""
    name = names.endpoint_name(deployment.environment, deployment.name)
    return [{"Name": "EndpointName", "Value": name}]


def dimensions(deployment: DeployedEndpoint, variant: str) -> Dimensions:
    """The CloudWatch dimensions of a variant, by its name."""
    return [*endpoint_dimensions(deployment), {"Name": "VariantName", "Value": variant}]


def scaled_variant(deployment: DeployedEndpoint, variant: str, target_id: str) -> Scaled:
    """Return the instances of a variant, by its name."""
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    return Scaled(
        name=endpoint if variant == VARIANT else f"{endpoint}-{variant}",
        resource_id=f"endpoint/{endpoint}/variant/{variant}",
        target_id=target_id,
    )


def _instances_of(deployment: Deployment, variant: Variant) -> Scaled:
    return scaled_variant(deployment, variant.name, variant_id(variant, "ScalableTarget"))


def _scalable_target(deployment: Deployment, variant: Variant) -> Resource:
    scaling = variant.scaling
    return _instances_of(deployment, variant).target("Endpoint", scaling.min, scaling.max)


def _scheduled_action(
    scaling: ScalingSpec, floor: ScheduledFloorSpec, number: int
) -> dict[str, Any]:
    """Set both bounds always: AWS refuses a floor above the ceiling that an earlier action left."""
    zone = {} if floor.timezone is None else {"Timezone": floor.timezone}
    ceiling = scaling.max if floor.max is None else floor.max
    return {
        "ScheduledActionName": f"floor-{number}",
        "Schedule": floor.schedule,
        **zone,
        "ScalableTargetAction": {"MinCapacity": floor.min, "MaxCapacity": ceiling},
    }


def _at_once(deployment: Deployment, variant: Variant) -> Iterator[tuple[str, Resource]]:
    predefined = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
    of = dimensions(deployment, variant.name)
    for part, target, metric in (
        (
            "invocations",
            invocations_target(deployment, variant),
            {"PredefinedMetricSpecification": predefined},
        ),
        ("gpu", gpu_target(deployment, variant), _average(HOST, "GPUUtilization", of)),
        ("cpu", cpu_target(variant), _average(HOST, "CPUUtilization", of)),
    ):
        if target is not None:
            policy = _tracking(deployment, variant, part, target, metric)
            yield variant_id(variant, f"{part.capitalize()}Policy"), policy


def _asynchronous(deployment: Deployment, variant: Variant) -> Iterator[tuple[str, Resource]]:
    """The queue alone moves the count: a GPU that works through it is full whatever its length.

    At zero instances only HasBacklogWithoutCapacity speaks.
    """
    backlog, endpoint = backlog_target(deployment, variant), endpoint_dimensions(deployment)
    if backlog is not None:
        metric = _average(INVOCATIONS, "ApproximateBacklogSizePerInstance", endpoint)
        policy = _tracking(deployment, variant, "backlog", backlog, metric)
        yield variant_id(variant, "BacklogPolicy"), policy
    if fewest(variant) == 0:
        policy_id = variant_id(variant, "FromZeroPolicy")
        yield policy_id, QUEUE_FROM_ZERO.policy(_instances_of(deployment, variant))
        name = f"{names.endpoint_name(deployment.environment, deployment.name)}-from-zero"
        # The variant stands last: alarms of all endpoints differ by name.
        name += "" if variant.name == VARIANT else f"-{variant.name}"
        yield variant_id(variant, "FromZeroAlarm"), QUEUE_FROM_ZERO.alarm(name, endpoint, policy_id)


def _tracking(
    deployment: Deployment, variant: Variant, name: str, target: TargetValue, metric: dict[str, Any]
) -> Resource:
    scaling = variant.scaling
    cooldowns = (scaling.scale_out_cooldown_seconds, scaling.scale_in_cooldown_seconds)
    return _instances_of(deployment, variant).tracking(name, target, metric, cooldowns)


def _average(namespace: str, name: str, of: Dimensions) -> dict[str, Any]:
    metric = {"Namespace": namespace, "MetricName": name, "Dimensions": of, "Statistic": "Average"}
    return {"CustomizedMetricSpecification": metric}
