"""CloudFormation properties of an endpoint config and an endpoint, from its deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding import arns, names
from onboarding.deployment import VARIANT, Deployment, Pool, Variant
from onboarding.hosting_spec import AsynchronousSpec, MetricsSpec
from onboarding.repository_spec import RepositorySpec, repository_models
from onboarding.serve_environment import (
    python_server_environment,
    serve_environment,
    signers_environment,
)
from onboarding.values import Server
from stacks.images import endpoint_image_uri, serving_image
from stacks.rollout import PROVISION_SECONDS, variant_timeouts
from stacks.scaling.targets import variant_id
from stacks.template import Properties, content_name, vpc_config

RETAINS, RETAINED = "RetainVariantProperties", "VariantPropertiesAreRetained"
"""A parameter, which `roundhouse deploy` sets, and the condition that it is true."""
RETAINED_PROPERTIES: Mapping[str, Any] = {
    "RetainAllVariantProperties": {"Fn::If": [RETAINED, True, {"Ref": "AWS::NoValue"}]},
    "ExcludeRetainedVariantProperties": {
        "Fn::If": [RETAINED, [{"VariantPropertyType": "DesiredWeight"}], {"Ref": "AWS::NoValue"}]
    },
}
"""Of an endpoint whose instance counts scaling moves: all but the weights."""


@dataclass(frozen=True, kw_only=True)
class EndpointModel:
    """One SageMaker model: its logical id, its name, and its properties without name and role."""

    logical_id: str
    name: str
    properties: dict[str, Any]


Models = Mapping[str, Sequence[EndpointModel]]
"""The models of each variant, by its name, in the order of its pools."""


def endpoint_config_properties(deployment: Deployment, models: Models) -> Properties:
    """An `AWS::SageMaker::EndpointConfig` without its name."""
    properties: Properties = {}
    for key, role in (("ProductionVariants", "variant"), ("ShadowProductionVariants", "shadow")):
        variants = [variant for variant in deployment.variants if variant.role == role]
        if variants:
            properties[key] = [
                variant_properties(deployment, variant, models[variant.name])
                for variant in variants
            ]
    if deployment.endpoint.data_capture is not None:
        percent = deployment.endpoint.data_capture.percent
        properties["DataCaptureConfig"] = _data_capture(deployment, percent)
    if deployment.endpoint.asynchronous is not None:
        properties["AsyncInferenceConfig"] = _async_inference(
            deployment, deployment.endpoint.asynchronous
        )
    if deployment.endpoint.metrics is not None:
        properties["MetricsConfig"] = _metrics(deployment.endpoint.metrics)
    properties["KmsKeyId"] = arns.key_id(deployment.environment)
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
        "InitialInstanceCount": initial_count(variant),
        "InitialVariantWeight": (
            int(variant.weight) if variant.weight.is_integer() else variant.weight
        ),
        "ModelDataDownloadTimeoutInSeconds": download,
        "ContainerStartupHealthCheckTimeoutInSeconds": start_up,
    }
    if variant.instance_type.is_gpu and deployment.inference_ami_version is not None:
        properties["InferenceAmiVersion"] = deployment.inference_ami_version
    queued = deployment.endpoint.asynchronous is not None
    # Instance pools demand it. A multi-model endpoint routes a target to the instance that has it
    # loaded, a queue to any.
    if len(variant.pools) > 1 or not (deployment.multi_model or queued):
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
    return {**properties, **(RETAINED_PROPERTIES if counts_move else {})}


def initial_count(variant: Variant) -> int:
    """Return how many instances a new endpoint begins with; SageMaker takes no 0."""
    return max(1, variant.scaling.min)


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


def _data_capture(deployment: Deployment, percent: int) -> Properties:
    bucket = names.artifact_bucket(deployment.environment)
    return {
        "EnableCapture": True,
        "InitialSamplingPercentage": percent,
        "DestinationS3Uri": f"s3://{bucket}/{names.CAPTURES_PREFIX}",
        "KmsKeyId": arns.key_id(deployment.environment),
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
        "CaptureContentTypeHeader": {"JsonContentTypes": ["application/json"]},
    }


def _metrics(metrics: MetricsSpec) -> Properties:
    """What the file leaves out is left to SageMaker."""
    detailed = metrics.detailed
    given = {} if detailed is None else {"EnableDetailedObservability": detailed}
    return {"EnableEnhancedMetrics": False, **given}


def _async_inference(deployment: Deployment, asynchronous: AsynchronousSpec) -> Properties:
    environment = deployment.environment
    prefix = names.answers_prefix(environment, deployment.name)
    answers = f"s3://{names.artifact_bucket(environment)}/{prefix}"
    output: Properties = {
        "S3OutputPath": f"{answers}/answered",
        "S3FailurePath": f"{answers}/failed",
        "KmsKeyId": arns.key_id(environment),
    }
    if asynchronous.notify:
        topic = arns.answer_topic(environment)
        output["NotificationConfig"] = {"SuccessTopic": topic, "ErrorTopic": topic}
    properties: Properties = {"OutputConfig": output}
    most = asynchronous.max_concurrent_invocations
    if most is not None:
        properties["ClientConfig"] = {"MaxConcurrentInvocationsPerInstance": most}
    return properties


OWN_MODEL = "Model"


def variant_models(
    deployment: Deployment, variant: Variant, image_uris: Mapping[str, str]
) -> tuple[EndpointModel, ...]:
    """The model of each pool, in their order; pools with the same engine have the same model."""
    models: list[EndpointModel] = []
    for pool in variant.pools:
        content = model_properties(deployment, variant.server, pool, image_uris)
        same = next((model for model in models if model.properties == content), None)
        models.append(same or _model(deployment, _logical_id(variant, pool), content))
    return tuple(models)


def model_properties(
    deployment: Deployment, server: Server, pool: Pool, image_uris: Mapping[str, str]
) -> dict[str, Any]:
    """An `AWS::SageMaker::Model` without its name and role."""
    image = serving_image(server, pool)
    return {
        "PrimaryContainer": {
            "Image": endpoint_image_uri(deployment, image, image_uris),
            **(_multi_model if deployment.multi_model else _single_model)(deployment, server, pool),
        },
        "EnableNetworkIsolation": deployment.endpoint.network_isolation,
        **vpc_config(deployment.environment.network),
    }


def _model(deployment: Deployment, logical_id: str, content: dict[str, Any]) -> EndpointModel:
    """The role is no part of the name: its logical id stays, and its statements change in place.

    The logical id is, but for the first model: a model that moves to another id, as when two pools
    change places, is made before the old one of that content is deleted, and must not be called the
    same.
    """
    identity = content if logical_id == OWN_MODEL else {"LogicalId": logical_id, **content}
    name = content_name(names.endpoint_name(deployment.environment, deployment.name), identity)
    return EndpointModel(logical_id=logical_id, name=name, properties=content)


def _logical_id(variant: Variant, pool: Pool) -> str:
    """The first pool's never changes; that of a further pool holds its instance type."""
    if pool is variant.pools[0]:
        return variant_id(variant, OWN_MODEL)
    family, size = pool.instance_type.name.removeprefix("ml.").split(".")
    suffix = "" if variant.name == VARIANT else variant_id(variant, "Of")
    return f"PoolModel{family[:1].upper()}{family[1:]}{size[:1].upper()}{size[1:]}{suffix}"


def _single_model(deployment: Deployment, server: Server, pool: Pool) -> dict[str, Any]:
    (target,) = pool.targets
    assert target.lock_entry is not None
    bucket = names.artifact_bucket(deployment.environment)
    pinned = {"ROUNDHOUSE_MANIFEST_SHA256": target.lock_entry.archive.manifest_sha256}
    return {
        "Mode": "SingleModel",
        "ModelDataUrl": f"s3://{bucket}/{names.engine_archive_path(target.engine_key)}",
        "Environment": {**pinned, **_environment(deployment, server, pool, target.model.name)},
    }


def _multi_model(deployment: Deployment, server: Server, pool: Pool) -> dict[str, Any]:
    bucket = names.artifact_bucket(deployment.environment)
    return {
        "Mode": "MultiModel",
        "ModelDataUrl": f"s3://{bucket}/{names.ENGINES_PREFIX}/",
        "Environment": _environment(deployment, server, pool, None),
    }


def _environment(
    deployment: Deployment, server: Server, pool: Pool, model: str | None
) -> dict[str, str]:
    """Return the variables of the server; no model is a multi-model endpoint."""
    signers = signers_environment(deployment.environment.trusted_signers)
    asynchronous = deployment.endpoint.asynchronous is not None
    if server != "triton":
        slots = None if model is None else pool.targets[0].model.serving.slots
        return python_server_environment(asynchronous=asynchronous, slots=slots) | signers
    targets = [target for owner in pool.targets for target in (*owner.steps, owner)]
    models, metrics = [target.model for target in targets], deployment.endpoint.metrics
    variables = serve_environment(
        model,
        version_compatible=pool.instance_type.is_gpu
        and any(model.engine.version_compatible for model in models),
        plugins=list(
            dict.fromkeys(plugin.name for model in models for plugin in model.engine.plugins)
        )
        if pool.instance_type.is_gpu
        else (),
        other_models=_other_models(pool),
        response_cache=any(model.serving.response_cache for model in models),
        asynchronous=asynchronous,
        metrics=metrics is not None and metrics.detailed is True,
    )
    return variables | signers


def _other_models(pool: Pool) -> list[str]:
    """Return the models of repositories of the user's own beside the one that clients ask."""
    return [
        name
        for target in pool.targets
        if isinstance(target.model, RepositorySpec) and target.lock_entry is not None
        for name in repository_models(target.lock_entry.manifest)
        if name != target.model.name
    ]
