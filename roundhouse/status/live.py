"""What an account runs.

Endpoint configs, engines, images, instances, alarms; of text generators components and copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from onboarding.deployment import DeployedEndpoint, Deployment
from onboarding.keys import KEY_LENGTH
from onboarding.names import ENGINES_PREFIX, endpoint_name
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.deploy.endpoint_steps import (
    alarms_in_alarm,
)

ENGINE_KEY = re.compile(rf"{ENGINES_PREFIX}/([0-9a-f]{{{KEY_LENGTH}}})/")
CONTAINERS = ("PrimaryContainer", "Containers")
KINDS = ("ProductionVariants", "ShadowProductionVariants")
IN_SERVICE = "InService"


@dataclass(frozen=True, kw_only=True)
class LiveVariant:
    """One running variant; `engines`: keys, empty where target models are loaded by request."""

    name: str
    instance_type: str
    instances: int
    desired_instances: int
    engines: tuple[str, ...]
    images: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LiveEndpoint:
    """One endpoint as it runs."""

    name: str
    endpoint: str
    status: str
    config: str | None
    variants: tuple[LiveVariant, ...]
    alarms: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LiveComponent:
    """One inference component; `base` None: it has copies of its own, else it is an adapter of it.

    `changed`: when, in UTC; `failure_reason`: of that change, set too where SageMaker went back.
    `model` is SageMaker's, None: an adapter. `serves`: the checkpoint's key, or where the adapter's
    files are.
    """

    name: str
    base: str | None
    status: str
    changed: str
    failure_reason: str | None
    copies: int
    desired_copies: int
    model: str | None
    serves: str | None

    @property
    def is_zero(self) -> bool:
        """Return whether it is scaled to zero: the next request finds no copy."""
        counts = (self.copies, self.desired_copies)
        return self.base is None and self.status == IN_SERVICE and counts == (0, 0)


@dataclass(frozen=True, kw_only=True)
class LiveGenerator:
    """One text generator's endpoint as it runs."""

    name: str
    endpoint: str
    status: str
    failure_reason: str | None
    config: str
    instance_type: str
    instances: int
    desired_instances: int
    serves: str | None
    components: tuple[LiveComponent, ...]
    alarms: tuple[str, ...]


def live_endpoint(clients: Clients, deployment: Deployment) -> LiveEndpoint | None:
    """Return an endpoint as it runs; None: it is not deployed."""
    found = _describe(clients, deployment)
    if found is None:
        return None
    name, endpoint, config = found
    with calling(f"Endpoint {name}"):
        variants = tuple(_variants(clients("sagemaker"), endpoint, config))
    return LiveEndpoint(
        name=deployment.name,
        endpoint=name,
        status=str(endpoint["EndpointStatus"]),
        config=endpoint["EndpointConfigName"],
        variants=variants,
        alarms=alarms_in_alarm(clients, name),
    )


def live_generator(clients: Clients, deployment: GenerationDeployment) -> LiveGenerator | None:
    """Return a text generator's endpoint as it runs; None: it is not deployed."""
    found = _describe(clients, deployment)
    if found is None:
        return None
    name, endpoint, config = found
    sagemaker, variant = clients("sagemaker"), config["ProductionVariants"][0]
    with calling(f"Endpoint {name}"):
        served = _checkpoint(sagemaker, variant["ModelName"]) if "ModelName" in variant else None
        components = tuple(_components(sagemaker, name))
    counts: Mapping[str, Any] = next(iter(endpoint.get("ProductionVariants") or ()), {})
    return LiveGenerator(
        name=deployment.name,
        endpoint=name,
        status=str(endpoint["EndpointStatus"]),
        failure_reason=endpoint.get("FailureReason"),
        config=str(endpoint["EndpointConfigName"]),
        instance_type=str(variant.get("InstanceType", "")),
        instances=int(counts.get("CurrentInstanceCount", 0)),
        desired_instances=int(counts.get("DesiredInstanceCount", 0)),
        serves=served,
        components=components,
        alarms=alarms_in_alarm(clients, name),
    )


def _describe(
    clients: Clients, deployment: DeployedEndpoint
) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
    """Return an endpoint's name, and what SageMaker says of it and its config; None: not there."""
    from botocore.exceptions import ClientError

    sagemaker, name = clients("sagemaker"), endpoint_name(deployment.environment, deployment.name)
    with calling(f"Endpoint {name}"):
        try:
            endpoint = sagemaker.describe_endpoint(EndpointName=name)
        except ClientError as error:
            if "Could not find" in str(error):
                return None
            raise
        config = sagemaker.describe_endpoint_config(
            EndpointConfigName=endpoint["EndpointConfigName"]
        )
    return name, endpoint, config


def _variants(
    sagemaker: Client, endpoint: Mapping[str, Any], config: Mapping[str, Any]
) -> Iterator[LiveVariant]:
    configured = {
        variant["VariantName"]: variant for kind in KINDS for variant in config.get(kind, ())
    }
    for variant in (variant for kind in KINDS for variant in endpoint.get(kind, ())):
        spec = configured.get(variant["VariantName"], {})
        name = spec.get("ModelName")
        model = {} if name is None else sagemaker.describe_model(ModelName=name)
        text = str([model.get(field) for field in CONTAINERS])
        yield LiveVariant(
            name=variant["VariantName"],
            instance_type=str(spec.get("InstanceType", "")),
            instances=int(variant.get("CurrentInstanceCount", 0)),
            desired_instances=int(variant.get("DesiredInstanceCount", 0)),
            engines=tuple(dict.fromkeys(ENGINE_KEY.findall(text))),
            images=tuple(
                image["SpecifiedImage"]
                for image in variant.get("DeployedImages", ())
                if "SpecifiedImage" in image
            ),
        )


def _components(sagemaker: Client, endpoint: str) -> Iterator[LiveComponent]:
    """Yield the components of an endpoint, those with copies before their adapters."""
    pages = sagemaker.get_paginator("list_inference_components").paginate(
        EndpointNameEquals=endpoint
    )
    names = [
        item["InferenceComponentName"] for page in pages for item in page["InferenceComponents"]
    ]
    found = []
    for name in names:
        component = sagemaker.describe_inference_component(InferenceComponentName=name)
        specification = component.get("Specification", {})
        model = specification.get("ModelName")
        # An adapter has no copies of its own.
        counts = component.get("RuntimeConfig", {})
        changed = component["LastModifiedTime"].astimezone(UTC)
        found.append(
            LiveComponent(
                name=name,
                base=specification.get("BaseInferenceComponentName"),
                status=str(component["InferenceComponentStatus"]),
                changed=changed.strftime("%Y-%m-%d %H:%M:%S UTC"),
                failure_reason=component.get("FailureReason"),
                copies=int(counts.get("CurrentCopyCount", 0)),
                desired_copies=int(counts.get("DesiredCopyCount", 0)),
                model=model,
                serves=specification.get("Container", {}).get("ArtifactUrl")
                if model is None
                else _checkpoint(sagemaker, model),
            )
        )
    yield from sorted(found, key=lambda item: (item.base or "", item.name))


def _checkpoint(sagemaker: Client, model: str) -> str | None:
    """Return the key of the checkpoint whose files a model of SageMaker has."""
    container = sagemaker.describe_model(ModelName=model).get("PrimaryContainer", {})
    source = container.get("ModelDataSource", {}).get("S3DataSource", {})
    folder, _, key = str(source.get("S3Uri", "")).rstrip("/").rpartition("/")
    return key if folder.endswith(checkpoint_prefix("").strip("/")) else None
