"""CloudFormation resources of an endpoint's scaling by logical id, with derivations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, Deployment, Variant
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

TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
FROM_ZERO_COOLDOWN_SECONDS = 300

Resource = dict[str, Any]


def scaling_resources(deployment: Deployment) -> dict[str, Resource]:
    """Scalable target and policies of every production variant that scales.

    A shadow follows the count it began with. The target names no role: Application Auto Scaling
    makes its service-linked role for SageMaker by itself.
    """
    policies = _at_once if deployment.endpoint.asynchronous is None else _asynchronous
    resources = scalable_targets(deployment)
    for variant in scaled_variants(deployment):
        resources |= policies(deployment, variant)
    return resources


def scalable_targets(deployment: Deployment) -> dict[str, Resource]:
    """Scalable target of every production variant that scales, whatever engines are built."""
    resources: dict[str, Resource] = {}
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


def held_counts(deployment: Deployment) -> dict[str, Resource]:
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


def endpoint_dimensions(deployment: Deployment) -> list[dict[str, str]]:
    """The CloudWatch dimensions of an endpoint as a whole."""
    name = names.endpoint_name(deployment.environment, deployment.name)
    return [{"Name": "EndpointName", "Value": name}]


def dimensions(deployment: Deployment, variant: Variant) -> list[dict[str, str]]:
    """The CloudWatch dimensions of a variant."""
    return [*endpoint_dimensions(deployment), {"Name": "VariantName", "Value": variant.name}]


def _scalable_target(deployment: Deployment, variant: Variant) -> Resource:
    return {
        "Type": TARGET,
        "DependsOn": ["Endpoint"],
        "Properties": {
            **_scaled_resource(deployment, variant),
            "MinCapacity": variant.scaling.min,
            "MaxCapacity": variant.scaling.max,
        },
    }


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
    invocations, gpu = invocations_target(deployment, variant), gpu_target(deployment, variant)
    if invocations is not None:
        predefined = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
        metric = {"PredefinedMetricSpecification": predefined}
        policy = _tracking(deployment, variant, "invocations", invocations, metric)
        yield variant_id(variant, "InvocationsPolicy"), policy
    if gpu is not None:
        metric = _average(HOST, "GPUUtilization", dimensions(deployment, variant))
        policy = _tracking(deployment, variant, "gpu", gpu, metric)
        yield variant_id(variant, "GpuPolicy"), policy
    cpu = cpu_target(variant)
    if cpu is not None:
        metric = _average(HOST, "CPUUtilization", dimensions(deployment, variant))
        yield variant_id(variant, "CpuPolicy"), _tracking(deployment, variant, "cpu", cpu, metric)


def _asynchronous(deployment: Deployment, variant: Variant) -> Iterator[tuple[str, Resource]]:
    """The queue alone moves the count: a GPU that works through it is full whatever its length.

    At zero instances only HasBacklogWithoutCapacity speaks. Source: SageMaker developer guide,
    "Autoscale an asynchronous endpoint".
    """
    backlog = backlog_target(deployment, variant)
    if backlog is not None:
        endpoint = endpoint_dimensions(deployment)
        metric = _average(INVOCATIONS, "ApproximateBacklogSizePerInstance", endpoint)
        policy = _tracking(deployment, variant, "backlog", backlog, metric)
        yield variant_id(variant, "BacklogPolicy"), policy
    if fewest(variant) == 0:
        policy_id = variant_id(variant, "FromZeroPolicy")
        yield policy_id, _from_zero_policy(deployment, variant)
        alarm = _from_zero_alarm(deployment, variant, policy_id)
        yield variant_id(variant, "FromZeroAlarm"), alarm


def _tracking(
    deployment: Deployment, variant: Variant, name: str, target: TargetValue, metric: dict[str, Any]
) -> Resource:
    configuration = {
        "TargetValue": target.value,
        **metric,
        "ScaleOutCooldown": variant.scaling.scale_out_cooldown_seconds,
        "ScaleInCooldown": variant.scaling.scale_in_cooldown_seconds,
    }
    derivation = {"TargetValue": target.derivation}
    return _policy(deployment, variant, name, "TargetTracking", configuration, derivation)


def _from_zero_policy(deployment: Deployment, variant: Variant) -> Resource:
    configuration = {
        "AdjustmentType": "ChangeInCapacity",
        "MetricAggregationType": "Average",
        "Cooldown": FROM_ZERO_COOLDOWN_SECONDS,
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
    }
    derivation = {"ScalingAdjustment": "one instance, once a request waits and there is none"}
    return _policy(deployment, variant, "from-zero", "Step", configuration, derivation)


def _policy(
    deployment: Deployment,
    variant: Variant,
    name: str,
    kind: str,
    configuration: dict[str, Any],
    derivation: dict[str, str],
) -> Resource:
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    own = endpoint if variant.name == VARIANT else f"{endpoint}-{variant.name}"
    return {
        "Type": POLICY,
        "DependsOn": [variant_id(variant, "ScalableTarget")],
        "Metadata": {"Derivation": derivation},
        "Properties": {
            "PolicyName": f"{own}-{name}",
            "PolicyType": f"{kind}Scaling",
            **_scaled_resource(deployment, variant),
            f"{kind}ScalingPolicyConfiguration": configuration,
        },
    }


def _from_zero_alarm(deployment: Deployment, variant: Variant, policy_id: str) -> Resource:
    name = f"{names.endpoint_name(deployment.environment, deployment.name)}-from-zero"
    # The variant stands last: alarms of all endpoints differ by name.
    name += "" if variant.name == VARIANT else f"-{variant.name}"
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmName": name,
            "AlarmDescription": f"{name}: a request waits and there is no instance; adds one",
            "Namespace": INVOCATIONS,
            "MetricName": "HasBacklogWithoutCapacity",
            "Dimensions": endpoint_dimensions(deployment),
            "Statistic": "Average",
            "Period": 60,
            "EvaluationPeriods": 2,
            "DatapointsToAlarm": 2,
            "Threshold": 1,
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "TreatMissingData": "missing",
            "AlarmActions": [{"Ref": policy_id}],
        },
    }


def _average(namespace: str, name: str, of: list[dict[str, str]]) -> dict[str, Any]:
    metric = {"Namespace": namespace, "MetricName": name, "Dimensions": of, "Statistic": "Average"}
    return {"CustomizedMetricSpecification": metric}


def _scaled_resource(deployment: Deployment, variant: Variant) -> dict[str, str]:
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    return {
        "ServiceNamespace": "sagemaker",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        "ResourceId": f"endpoint/{endpoint}/variant/{variant.name}",
    }
