"""What an account runs, and how it differs from the files.

Endpoint configs, engines, images, instances, alarms; of text generators components and copies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from onboarding.deployment import DeployedEndpoint, Deployment, Variant
from onboarding.keys import KEY_LENGTH
from onboarding.names import ENGINES_PREFIX, adapter_component, endpoint_name, stack_name
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.deploy.endpoint_steps import (
    CONFIG,
    MODEL,
    alarms_in_alarm,
    deployed_name,
    is_as_deployed,
)
from roundhouse.deploy.stacks import NEVER_DEPLOYED, endpoint_stack_name, stack_summaries
from stacks.images import endpoint_image_uri
from stacks.scaling.targets import fewest, most

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
    """One endpoint as it runs; `drift`: how it differs from the files, one line each."""

    name: str
    endpoint: str
    status: str
    config: str | None
    stack_config: str | None
    variants: tuple[LiveVariant, ...]
    alarms: tuple[str, ...]
    drift: tuple[str, ...]


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
    """One text generator's endpoint as it runs; `drift`: how it differs from the files."""

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
    drift: tuple[str, ...]


def live_endpoint(
    clients: Clients, deployment: Deployment, uris: Mapping[str, str]
) -> LiveEndpoint | None:
    """Return an endpoint as it runs; None: it is not deployed.

    `uris`: where the registry has each image of the code as it is now.
    """
    found = _describe(clients, deployment)
    if found is None:
        return None
    name, endpoint, config = found
    with calling(f"Endpoint {name}"):
        variants = tuple(_variants(clients("sagemaker"), endpoint, config))
    deployed = deployed_name(clients, endpoint_stack_name(deployment), CONFIG)
    return LiveEndpoint(
        name=deployment.name,
        endpoint=name,
        status=str(endpoint["EndpointStatus"]),
        config=endpoint["EndpointConfigName"],
        stack_config=deployed,
        variants=variants,
        alarms=alarms_in_alarm(clients, name),
        drift=(
            *_config_drift(endpoint["EndpointConfigName"], deployed),
            *file_drift(deployment, variants, uris),
        ),
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
    stack = endpoint_stack_name(deployment)
    model = deployed_name(clients, stack, MODEL)
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
        drift=(
            *_config_drift(endpoint["EndpointConfigName"], deployed_name(clients, stack, CONFIG)),
            *_component_drift(deployment, served, components),
            *(
                f"{item.name} runs model {item.model}, its stack deployed {model}: SageMaker went "
                "back, or an update is under way"
                for item in components
                if None not in (model, item.model) and item.model != model
            ),
        ),
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


def _config_drift(live: str, deployed: str | None) -> Iterator[str]:
    if not is_as_deployed(live, deployed):
        yield (
            f"serves endpoint config {live}, its stack deployed {deployed}: rolled back, or "
            "changed by hand"
        )


def file_drift(
    deployment: Deployment, live: Sequence[LiveVariant], uris: Mapping[str, str]
) -> Iterator[str]:
    """Return how running variants differ from the files: engines, images, types, instances."""
    running = {variant.name: variant for variant in live}
    wanted = {variant.name: variant for variant in deployment.variants}
    for name in running.keys() - wanted.keys():
        yield f"{name}: runs, and no file has this variant"
    for name, variant in wanted.items():
        if name not in running:
            yield f"{name}: is in the files, and does not run"
        else:
            yield from (
                f"{name}: {line}" for line in _variant_drift(variant, running[name], deployment)
            )
    given = dict(image_reference(endpoint_image_uri(deployment, name, uris)) for name in uris)
    for image in dict.fromkeys(image for variant in live for image in variant.images):
        path, reference = image_reference(image)
        if path in given and given[path] != reference:
            yield f"runs image {path}:{reference}, the files give {given[path]}"


def image_reference(uri: str) -> tuple[str, str]:
    """Return the repository of an image's URI, and its tag or digest."""
    path, _, reference = uri.partition("/")[2].replace("@", ":", 1).partition(":")
    return path, reference


def stacks_without_files(
    clients: Clients, deployments: Collection[DeployedEndpoint]
) -> tuple[str, ...]:
    """Return the endpoint stacks of an environment that no file describes any more."""
    environments = {
        deployment.environment.name: deployment.environment for deployment in deployments
    }
    prefixes = tuple(stack_name(spec, "endpoint-") for spec in environments.values())
    own = set(map(endpoint_stack_name, deployments))
    return tuple(
        sorted(
            name
            for name, stack in stack_summaries(clients("cloudformation")).items()
            if prefixes
            and name.startswith(prefixes)
            and name not in own
            and stack.status not in NEVER_DEPLOYED
        )
    )


def _variant_drift(variant: Variant, live: LiveVariant, deployment: Deployment) -> Iterator[str]:
    engines = {target.engine_key for pool in variant.pools for target in pool.targets}
    if live.engines and not deployment.multi_model and not set(live.engines) <= engines:
        serves, files = ", ".join(live.engines), ", ".join(sorted(engines))
        yield f"serves engine {serves}, the files give {files}"
    types = [pool.instance_type.name for pool in variant.pools]
    if live.instance_type and live.instance_type not in types:
        yield f"runs on {live.instance_type}, the files give {', '.join(types)}"
    if not fewest(variant) <= live.desired_instances <= most(variant):
        yield (
            f"wants {live.desired_instances} instances, the files give {fewest(variant)} to "
            f"{most(variant)}"
        )


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


def _component_drift(
    deployment: GenerationDeployment, model: str | None, components: Sequence[LiveComponent]
) -> Iterator[str]:
    """Yield how what runs differs from the files: checkpoint, and components that are too many."""
    name = endpoint_name(deployment.environment, deployment.name)
    wanted = None if deployment.entry is None else deployment.entry.checkpoint_key
    has_component = deployment.spec.endpoint.kind == "inference-component"
    names = {
        adapter_component(deployment.environment, deployment.name, adapter.name)
        for adapter in deployment.spec.serving.adapters
    }
    names |= {name} if has_component else set()
    there = {component.name: component for component in components}
    for missing in sorted(names - there.keys()):
        yield f"has no component {missing}, the files give one"
    for extra in sorted(there.keys() - names):
        yield f"has component {extra}, and no file gives it"
    served = there[name].serves if name in there else model
    if wanted is not None and served is not None and served != wanted:
        yield f"serves checkpoint {served}, the files give {wanted}"
