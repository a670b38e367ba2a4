"""CloudFormation properties of an endpoint's scaling, each target with its derivation."""

from __future__ import annotations

from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, Deployment
from stacks.capacity import Capacity, instance_capacity

DIMENSION = "sagemaker:variant:DesiredInstanceCount"
NAMESPACE = "sagemaker"


def scales(deployment: Deployment) -> bool:
    """True when there is anything to scale; a fixed count needs no target, which would also block a change of instance type."""
    return deployment.endpoint.scaling.max > deployment.endpoint.scaling.min


def scalable_target_properties(deployment: Deployment) -> dict[str, Any]:
    """An `AWS::ApplicationAutoScaling::ScalableTarget`."""
    scaling = deployment.endpoint.scaling
    return {**_scaled_thing(deployment), "MinCapacity": scaling.min, "MaxCapacity": scaling.max}


def invocations_policy(deployment: Deployment) -> tuple[dict[str, Any], dict[str, str]] | None:
    """Policy and derivation that keep invocations an instance below a share of the measured capacity; None when unmeasured."""
    capacity = instance_capacity(deployment)
    if capacity is None:
        return None
    target, derivation = _invocations_target(deployment, capacity)
    metric = {"PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}}
    return _policy(deployment, "invocations", target, metric), {"TargetValue": derivation}


def gpu_policy(deployment: Deployment) -> tuple[dict[str, Any], dict[str, str]] | None:
    """Policy and derivation that keep the GPUs below a utilization; None on a CPU. The metric counts 100 for every GPU."""
    if not deployment.instance_type.is_gpu:
        return None
    percent, gpus = deployment.endpoint.scaling.gpu_utilization_percent, deployment.instance_type.gpu_count
    metric = {
        "CustomizedMetricSpecification": {
            "Namespace": "/aws/sagemaker/Endpoints",
            "MetricName": "GPUUtilization",
            "Dimensions": dimensions(deployment),
            "Statistic": "Average",
        }
    }
    derivation = {"TargetValue": f"{percent} % x {gpus} GPU of {deployment.instance_type.name}"}
    return _policy(deployment, "gpu", percent * gpus, metric), derivation


def dimensions(deployment: Deployment) -> list[dict[str, str]]:
    """The CloudWatch dimensions of the endpoint's variant."""
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    return [{"Name": "EndpointName", "Value": endpoint}, {"Name": "VariantName", "Value": VARIANT}]


def _invocations_target(deployment: Deployment, capacity: Capacity) -> tuple[float, str]:
    safety = deployment.endpoint.scaling.safety_factor
    target = max(1.0, round(capacity.requests_per_second * 60 * safety, 1))
    return target, f"{capacity.derivation} x 60 s x safety factor {safety:g} = {target:g} invocations a minute"


def _policy(deployment: Deployment, name: str, target: float, metric: dict[str, Any]) -> dict[str, Any]:
    return {
        "PolicyName": f"{names.endpoint_name(deployment.environment, deployment.name)}-{name}",
        "PolicyType": "TargetTrackingScaling",
        **_scaled_thing(deployment),
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": target,
            **metric,
            "ScaleOutCooldown": 60,
            "ScaleInCooldown": 300,
        },
    }


def _scaled_thing(deployment: Deployment) -> dict[str, str]:
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    return {"ServiceNamespace": NAMESPACE, "ScalableDimension": DIMENSION, "ResourceId": f"endpoint/{endpoint}/variant/{VARIANT}"}
