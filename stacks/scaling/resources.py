"""CloudFormation resources of an endpoint's scaling by logical id, with derivations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, Deployment, Variant
from onboarding.model_spec import ScalingSpec, ScheduledFloorSpec
from stacks.scaling.targets import (
    TargetValue,
    backlog_target,
    fewest,
    gpu_target,
    invocations_target,
    scaled_variants,
    variant_id,
)

DIMENSION = "sagemaker:variant:DesiredInstanceCount"
NAMESPACE = "sagemaker"
TARGET, POLICY = (
    "AWS::ApplicationAutoScaling::ScalableTarget",
    "AWS::ApplicationAutoScaling::ScalingPolicy",
)
FROM_ZERO_COOLDOWN_SECONDS = 300

Resource = dict[str, Any]
Named = tuple[str, Resource]


def scaling_resources(deployment: Deployment) -> dict[str, Resource]:
    """Scalable target and policies of every production variant that scales.

    A shadow follows the count it began with.

    The target names no role: Application Auto Scaling makes its service-linked role for SageMaker
    by itself.
    """
    return dict(
        resource
        for variant in scaled_variants(deployment)
        for resource in _of_variant(deployment, variant)
    )


def dimensions(deployment: Deployment, variant: Variant | None = None) -> list[dict[str, str]]:
    """The CloudWatch dimensions of a variant; default: the endpoint's own."""
    name = VARIANT if variant is None else variant.name
    return [*_of_endpoint(deployment), {"Name": "VariantName", "Value": name}]


def _of_variant(deployment: Deployment, variant: Variant) -> Iterator[Named]:
    yield (
        variant_id(variant, "ScalableTarget"),
        {
            "Type": TARGET,
            "DependsOn": ["Endpoint"],
            "Properties": _target_properties(deployment, variant),
        },
    )
    if deployment.endpoint.asynchronous is not None:
        yield from _asynchronous(deployment, variant)
    else:
        yield from _at_once(deployment, variant)


def _target_properties(deployment: Deployment, variant: Variant) -> dict[str, Any]:
    scaling = variant.scaling
    actions = [_scheduled(scaling, each, number) for number, each in enumerate(scaling.schedule, 1)]
    bounds = {"MinCapacity": scaling.min, "MaxCapacity": scaling.max}
    return {
        **_scaled_thing(deployment, variant),
        **bounds,
        **({"ScheduledActions": actions} if actions else {}),
    }


def _scheduled(scaling: ScalingSpec, floor: ScheduledFloorSpec, number: int) -> dict[str, Any]:
    """Both bounds are always set.

    A floor above the ceiling that an earlier schedule left is refused when its time comes.
    """
    ceiling = scaling.max if floor.max is None else floor.max
    zone = {} if floor.timezone is None else {"Timezone": floor.timezone}
    action = {"MinCapacity": floor.min, "MaxCapacity": ceiling}
    return {
        "ScheduledActionName": f"floor-{number}",
        "Schedule": floor.schedule,
        **zone,
        "ScalableTargetAction": action,
    }


def _at_once(deployment: Deployment, variant: Variant) -> Iterator[Named]:
    invocations, gpu = invocations_target(deployment, variant), gpu_target(deployment, variant)
    if invocations is not None:
        metric = {
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
            }
        }
        yield (
            variant_id(variant, "InvocationsPolicy"),
            _tracking(deployment, variant, "invocations", invocations, metric),
        )
    if gpu is not None:
        metric = _metric(
            "/aws/sagemaker/Endpoints", "GPUUtilization", dimensions(deployment, variant)
        )
        yield variant_id(variant, "GpuPolicy"), _tracking(deployment, variant, "gpu", gpu, metric)


def _asynchronous(deployment: Deployment, variant: Variant) -> Iterator[Named]:
    """The queue alone moves the count: a GPU that works through it is full whatever its length.

    At zero instances only HasBacklogWithoutCapacity speaks. Source: SageMaker developer guide,
    "Autoscale an asynchronous
    endpoint".
    """
    backlog = backlog_target(deployment, variant)
    if backlog is not None:
        metric = _metric(
            "AWS/SageMaker", "ApproximateBacklogSizePerInstance", _of_endpoint(deployment)
        )
        yield (
            variant_id(variant, "BacklogPolicy"),
            _tracking(deployment, variant, "backlog", backlog, metric),
        )
    if fewest(variant) == 0:
        policy = variant_id(variant, "FromZeroPolicy")
        yield policy, _from_zero_policy(deployment, variant)
        yield variant_id(variant, "FromZeroAlarm"), _from_zero_alarm(deployment, variant, policy)


def _tracking(
    deployment: Deployment, variant: Variant, name: str, target: TargetValue, metric: dict[str, Any]
) -> Resource:
    scaling = variant.scaling
    return {
        "Type": POLICY,
        "DependsOn": [variant_id(variant, "ScalableTarget")],
        "Metadata": {"Derivation": {"TargetValue": target.derivation}},
        "Properties": {
            "PolicyName": _policy_name(deployment, variant, name),
            "PolicyType": "TargetTrackingScaling",
            **_scaled_thing(deployment, variant),
            "TargetTrackingScalingPolicyConfiguration": {
                "TargetValue": target.value,
                **metric,
                "ScaleOutCooldown": scaling.scale_out_cooldown_seconds,
                "ScaleInCooldown": scaling.scale_in_cooldown_seconds,
            },
        },
    }


def _from_zero_policy(deployment: Deployment, variant: Variant) -> Resource:
    return {
        "Type": POLICY,
        "DependsOn": [variant_id(variant, "ScalableTarget")],
        "Metadata": {
            "Derivation": {
                "ScalingAdjustment": "one instance, once a request waits and there is none"
            }
        },
        "Properties": {
            "PolicyName": _policy_name(deployment, variant, "from-zero"),
            "PolicyType": "StepScaling",
            **_scaled_thing(deployment, variant),
            "StepScalingPolicyConfiguration": {
                "AdjustmentType": "ChangeInCapacity",
                "MetricAggregationType": "Average",
                "Cooldown": FROM_ZERO_COOLDOWN_SECONDS,
                "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
            },
        },
    }


def _from_zero_alarm(deployment: Deployment, variant: Variant, policy: str) -> Resource:
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    # Alarms share one room of names with every other endpoint's, so the variant stands last.
    name = (
        f"{endpoint}-from-zero"
        if variant.name == VARIANT
        else f"{endpoint}-from-zero-{variant.name}"
    )
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmName": name,
            "AlarmDescription": f"{name}: a request waits and there is no instance; adds one",
            "Namespace": "AWS/SageMaker",
            "MetricName": "HasBacklogWithoutCapacity",
            "Dimensions": _of_endpoint(deployment),
            "Statistic": "Average",
            "Period": 60,
            "EvaluationPeriods": 2,
            "DatapointsToAlarm": 2,
            "Threshold": 1,
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "TreatMissingData": "missing",
            "AlarmActions": [{"Ref": policy}],
        },
    }


def _metric(namespace: str, name: str, of: list[dict[str, str]]) -> dict[str, Any]:
    metric = {"Namespace": namespace, "MetricName": name, "Dimensions": of, "Statistic": "Average"}
    return {"CustomizedMetricSpecification": metric}


def _of_endpoint(deployment: Deployment) -> list[dict[str, str]]:
    return [
        {
            "Name": "EndpointName",
            "Value": names.endpoint_name(deployment.environment, deployment.name),
        }
    ]


def _policy_name(deployment: Deployment, variant: Variant, name: str) -> str:
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    return f"{endpoint}-{name}" if variant.name == VARIANT else f"{endpoint}-{variant.name}-{name}"


def _scaled_thing(deployment: Deployment, variant: Variant) -> dict[str, str]:
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    return {
        "ServiceNamespace": NAMESPACE,
        "ScalableDimension": DIMENSION,
        "ResourceId": f"endpoint/{endpoint}/variant/{variant.name}",
    }


def held_counts(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Scalable targets of variants with a fixed count beside a variant that scales.

    An update of such an endpoint retains every count, so that a changed fixed one would never take:
    the bounds of its target,
    which are that count, bring it there. The logical id is the one that the target has once the
    variant scales.
    """
    scaled = scaled_variants(deployment)
    fixed = [
        variant
        for variant in deployment.variants
        if variant.role == "variant" and variant not in scaled
    ]
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    return {
        variant_id(variant, "ScalableTarget"): {
            "Type": TARGET,
            "DependsOn": ["Endpoint"],
            "Properties": {
                "ServiceNamespace": NAMESPACE,
                "ScalableDimension": DIMENSION,
                "ResourceId": f"endpoint/{endpoint}/variant/{variant.name}",
                "MinCapacity": variant.scaling.min,
                "MaxCapacity": variant.scaling.max,
            },
        }
        for variant in (fixed if scaled else ())
    }
