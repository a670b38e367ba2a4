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
from stacks.rollout import PROVISION_SECONDS, variant_timeouts
from stacks.template import Properties

RETAINS, RETAINED = "RetainVariantProperties", "VariantPropertiesAreRetained"
"""A parameter, which `roundhouse deploy` sets, and the condition that it is true."""
Models = Mapping[str, Sequence[EndpointModel]]
"""The models of each variant, by its name, in the order of its pools."""


def endpoint_config_properties(deployment: Deployment, models: Models) -> Properties:
    """An `AWS::SageMaker::EndpointConfig` without its name."""
    production = [variant for variant in deployment.variants if variant.role == "variant"]
    shadows = [variant for variant in deployment.variants if variant.role == "shadow"]
    properties: Properties = {
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
    properties["KmsKeyId"] = _key_id(deployment)
    return properties


def variant_properties(
    deployment: Deployment, variant: Variant, models: Sequence[EndpointModel]
) -> Properties:
    """One production or shadow variant; `models` are those of its pools, in their order."""
    download, start_up = variant_timeouts(deployment, variant)
    properties: Properties = {
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
    deployment: Deployment, config_name: str, rollout: Properties, *, counts_move: bool
) -> Properties:
    """Return an `AWS::SageMaker::Endpoint`; `counts_move`: its instance counts are scaled.

    Where they are, an update keeps the counts that it finds and takes the template's weights. A
    first deployment has nothing to keep: the condition `RETAINED` is false then. Capture always
    follows the template: SageMaker retains no capture config (API_VariantProperty).
    """
    properties: Properties = {
        "EndpointName": names.endpoint_name(deployment.environment, deployment.name),
        "EndpointConfigName": config_name,
        "DeploymentConfig": rollout,
    }
    if counts_move:
        weights = [{"VariantPropertyType": "DesiredWeight"}]
        properties["RetainAllVariantProperties"] = _if_retained(True)
        properties["ExcludeRetainedVariantProperties"] = _if_retained(weights)
    return properties


def _if_retained(value: Any) -> Properties:
    return {"Fn::If": [RETAINED, value, {"Ref": "AWS::NoValue"}]}


def _instances(variant: Variant, models: Sequence[EndpointModel]) -> Properties:
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


def _data_capture(deployment: Deployment, percent: int) -> Properties:
    return {
        "EnableCapture": True,
        "InitialSamplingPercentage": percent,
        "DestinationS3Uri": f"s3://{names.artifact_bucket(deployment.environment)}/{names.CAPTURES_PREFIX}",
        "KmsKeyId": _key_id(deployment),
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
        "CaptureContentTypeHeader": {"JsonContentTypes": ["application/json"]},
    }


def _asynchronous(deployment: Deployment) -> Properties:
    environment, asynchronous = deployment.environment, deployment.endpoint.asynchronous
    assert asynchronous is not None
    answers = f"s3://{names.artifact_bucket(environment)}/{names.answers_prefix(environment, deployment.name)}"
    output: Properties = {
        "S3OutputPath": f"{answers}/answered",
        "S3FailurePath": f"{answers}/failed",
        "KmsKeyId": _key_id(deployment),
    }
    if asynchronous.notify:
        topic = arns.answer_topic(environment)
        output["NotificationConfig"] = {"SuccessTopic": topic, "ErrorTopic": topic}
    properties: Properties = {"OutputConfig": output}
    if asynchronous.max_concurrent_invocations is not None:
        properties["ClientConfig"] = {
            "MaxConcurrentInvocationsPerInstance": asynchronous.max_concurrent_invocations
        }
    return properties


def _key_id(deployment: Deployment) -> str:
    environment = deployment.environment
    return (
        arns.key_alias(environment) if environment.kms_key_arn is None else environment.kms_key_arn
    )
