"""The SageMaker models of an endpoint: one for each variant, and one more for each instance pool
with an engine of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, Deployment, Pool, Variant
from onboarding.serve_environment import python_server_environment, serve_environment
from stacks.content_name import content_name
from stacks.images.serving import serving_image
from stacks.scaling.variants import variant_id

MODEL = "AWS::SageMaker::Model"
OWN_MODEL = "Model"


@dataclass(frozen=True, kw_only=True)
class EndpointModel:
    """One SageMaker model: its logical id, its name, and its properties without name and role."""

    logical_id: str
    name: str
    properties: dict[str, Any]


def variant_models(
    deployment: Deployment, variant: Variant, image_uris: Mapping[str, str]
) -> tuple[EndpointModel, ...]:
    """The model of each pool, in the order of the pools; pools with the same engine have the same
    model.
    """
    made: list[EndpointModel] = []
    for pool in variant.pools:
        content = model_properties(deployment, pool, image_uris)
        same = next((model for model in made if model.properties == content), None)
        made.append(
            _model(deployment, _logical_id(variant, pool), content) if same is None else same
        )
    return tuple(made)


def model_properties(
    deployment: Deployment, pool: Pool, image_uris: Mapping[str, str]
) -> dict[str, Any]:
    """An `AWS::SageMaker::Model` without its name and role."""
    network = deployment.environment.network
    image_uri = image_uris[serving_image(deployment.server, pool.instance_type)]
    container = (_multi_model if deployment.multi_model else _single_model)(
        deployment, pool, image_uri
    )
    properties: dict[str, Any] = {
        "PrimaryContainer": container,
        "EnableNetworkIsolation": deployment.endpoint.network_isolation,
    }
    if network is not None:
        properties["VpcConfig"] = {
            "Subnets": list(network.subnet_ids),
            "SecurityGroupIds": list(network.security_group_ids),
        }
    return properties


def _model(deployment: Deployment, logical_id: str, content: dict[str, Any]) -> EndpointModel:
    """The role is no part of the name: its logical id never changes, and its statements change in
    place.

    The logical id is, but for the first model: a model that moves to another id, as when two pools
    change places, is made
    before the old one of that content is deleted, and must not be called the same.
    """
    named = content if logical_id == OWN_MODEL else {"LogicalId": logical_id, **content}
    name = content_name(names.endpoint_name(deployment.environment, deployment.name), named)
    return EndpointModel(logical_id=logical_id, name=name, properties=content)


def _logical_id(variant: Variant, pool: Pool) -> str:
    """The first pool's never changes; that of a further pool says its instance type, not its place."""
    if pool is variant.pools[0]:
        return variant_id(variant, OWN_MODEL)
    family, size = pool.instance_type.name.removeprefix("ml.").split(".")
    suffix = "" if variant.name == VARIANT else variant_id(variant, "Of")
    return f"PoolModel{_capitalized(family)}{_capitalized(size)}{suffix}"


def _single_model(deployment: Deployment, pool: Pool, image_uri: str) -> dict[str, Any]:
    (target,) = pool.targets
    assert target.lock_entry is not None
    pinned = {"ROUNDHOUSE_MANIFEST_SHA256": target.lock_entry.archive.manifest_sha256}
    return {
        "Image": image_uri,
        "Mode": "SingleModel",
        "ModelDataUrl": f"s3://{names.artifact_bucket(deployment.environment)}/{names.engine_archive_path(target.engine_key)}",
        "Environment": {**pinned, **_environment(deployment, pool, target.model.name)},
    }


def _multi_model(deployment: Deployment, pool: Pool, image_uri: str) -> dict[str, Any]:
    return {
        "Image": image_uri,
        "Mode": "MultiModel",
        "ModelDataUrl": f"s3://{names.artifact_bucket(deployment.environment)}/{names.ENGINES_PREFIX}/",
        "Environment": _environment(deployment, pool, None),
    }


def _environment(deployment: Deployment, pool: Pool, model: str | None) -> dict[str, str]:
    """The variables of the server; no model is a multi-model endpoint."""
    if deployment.server != "triton":
        asynchronous = deployment.endpoint.asynchronous is not None
        return python_server_environment(asynchronous=asynchronous)
    models = [target.model for target in pool.targets]
    return serve_environment(
        model,
        version_compatible=pool.instance_type.is_gpu
        and any(each.engine.version_compatible for each in models),
        response_cache=any(each.serving.response_cache for each in models),
    )


def _capitalized(word: str) -> str:
    return word[:1].upper() + word[1:]
