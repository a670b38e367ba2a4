"""CloudFormation properties of an endpoint's config and of the endpoint itself, as pure functions
of its deployment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onboarding import names
from onboarding.deployment import Deployment, Variant
from stacks.access import arns
from stacks.endpoint.models import EndpointModel
from stacks.rollout.timeouts import PROVISION_SECONDS, variant_timeouts

Models = Mapping[str, Sequence[EndpointModel]]
"""The models of each variant, by its name, in the order of its pools."""


def endpoint_config_properties(deployment: Deployment, models: Models) -> dict[str, Any]:
    """An `AWS::SageMaker::EndpointConfig` without its name."""
    production = [variant for variant in deployment.variants if variant.role == "variant"]
    shadows = [variant for variant in deployment.variants if variant.role == "shadow"]
    properties: dict[str, Any] = {
        "ProductionVariants": [
            variant_properties(deployment, variant, models[variant.name]) for variant in production
        ]
    }
    if shadows:
        properties["ShadowProductionVariants"] = [
            variant_properties(deployment, variant, models[variant.name]) for variant in shadows
        ]
    if deployment.endpoint.data_capture is not None:
        properties["DataCaptureConfig"] = _data_capture(
            deployment, deployment.endpoint.data_capture.percent
        )
    if deployment.endpoint.asynchronous is not None:
        properties["AsyncInferenceConfig"] = _asynchronous(deployment)
    if takes_volume_key(deployment):
        properties["KmsKeyId"] = _key_id(deployment)
    return properties


def variant_properties(
    deployment: Deployment, variant: Variant, models: Sequence[EndpointModel]
) -> dict[str, Any]:
    """One production or shadow variant; `models` are those of its pools, in their order."""
    download, start_up = variant_timeouts(variant)
    properties: dict[str, Any] = {
        "VariantName": variant.name,
        "ModelName": models[0].name,
        **_instances(variant, models),
        "InitialInstanceCount": max(1, variant.scaling.min),
        "InitialVariantWeight": int(variant.weight)
        if variant.weight.is_integer()
        else variant.weight,
        "ModelDataDownloadTimeoutInSeconds": download,
        "ContainerStartupHealthCheckTimeoutInSeconds": start_up,
    }
    if variant.instance_type.is_gpu and deployment.inference_ami_version is not None:
        properties["InferenceAmiVersion"] = deployment.inference_ami_version
    if _routes_by_load(deployment, variant):
        properties["RoutingConfig"] = {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
    return properties


def endpoint_properties(
    deployment: Deployment,
    config_name: str,
    deployment_config: dict[str, Any],
    *,
    counts_move: bool,
) -> dict[str, Any]:
    """An `AWS::SageMaker::Endpoint`. `counts_move`: application auto scaling holds the instance
    counts.

    Where it does, an update keeps the counts that it finds, and takes the weights that the template
    says. Capture always
    follows the template: SageMaker retains no capture config ("not currently supported",
    API_VariantProperty). A variant that
    is new begins with its initial count, as all of them do in a first deployment, which has nothing
    to retain.
    """
    properties: dict[str, Any] = {
        "EndpointName": names.endpoint_name(deployment.environment, deployment.name),
        "EndpointConfigName": config_name,
        "DeploymentConfig": deployment_config,
    }
    if counts_move:
        properties["RetainAllVariantProperties"] = True
        properties["ExcludeRetainedVariantProperties"] = [{"VariantPropertyType": "DesiredWeight"}]
    return properties


def takes_volume_key(deployment: Deployment) -> bool:
    """True when every host's volume can be encrypted by a key; local NVMe disks are encrypted by
    their hardware.
    """
    return not any(
        pool.instance_type.local_nvme for variant in deployment.variants for pool in variant.pools
    )


def _instances(variant: Variant, models: Sequence[EndpointModel]) -> dict[str, Any]:
    if len(variant.pools) == 1:
        return {"InstanceType": variant.instance_type.name}
    pools = [
        {
            "InstanceType": pool.instance_type.name,
            "Priority": pool.priority,
            **({} if model is models[0] else {"ModelNameOverride": model.name}),
        }
        for pool, model in zip(variant.pools, models, strict=True)
    ]
    return {"InstancePools": pools, "VariantInstanceProvisionTimeoutInSeconds": PROVISION_SECONDS}


def _routes_by_load(deployment: Deployment, variant: Variant) -> bool:
    """Instance pools demand it; a multi-model endpoint routes a target to the instance that has it
    loaded, a queue to any.
    """
    return len(variant.pools) > 1 or not (
        deployment.multi_model or deployment.endpoint.asynchronous is not None
    )


def _data_capture(deployment: Deployment, percent: int) -> dict[str, Any]:
    return {
        "EnableCapture": True,
        "InitialSamplingPercentage": percent,
        "DestinationS3Uri": f"s3://{names.artifact_bucket(deployment.environment)}/{names.CAPTURES_PREFIX}",
        "KmsKeyId": _key_id(deployment),
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
        "CaptureContentTypeHeader": {"JsonContentTypes": ["application/json"]},
    }


def _asynchronous(deployment: Deployment) -> dict[str, Any]:
    environment, wishes = deployment.environment, deployment.endpoint.asynchronous
    assert wishes is not None
    answers = f"s3://{names.artifact_bucket(environment)}/{names.answers_prefix(environment, deployment.name)}"
    output: dict[str, Any] = {
        "S3OutputPath": f"{answers}/answered",
        "S3FailurePath": f"{answers}/failed",
        "KmsKeyId": _key_id(deployment),
    }
    if wishes.notify:
        topic = arns.alarm_topic(environment)
        output["NotificationConfig"] = {"SuccessTopic": topic, "ErrorTopic": topic}
    properties: dict[str, Any] = {"OutputConfig": output}
    if wishes.max_concurrent_invocations is not None:
        properties["ClientConfig"] = {
            "MaxConcurrentInvocationsPerInstance": wishes.max_concurrent_invocations
        }
    return properties


def _key_id(deployment: Deployment) -> str:
    environment = deployment.environment
    return (
        arns.key_alias(environment) if environment.kms_key_arn is None else environment.kms_key_arn
    )
