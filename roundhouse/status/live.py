"""What an account runs: endpoint configs, engines, images, instances, alarms.

And how it differs from the files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding.deployment import DeployedEndpoint, Deployment, Variant
from onboarding.keys import KEY_LENGTH
from onboarding.names import ENGINES_PREFIX, endpoint_name, stack_name
from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.deploy.endpoint_steps import alarms_in_alarm, live_config
from roundhouse.deploy.stacks import NEVER_DEPLOYED, endpoint_stack_name, stack_summaries
from stacks.images import endpoint_image_uri
from stacks.scaling.targets import fewest, most

ENGINE_KEY = re.compile(rf"{ENGINES_PREFIX}/([0-9a-f]{{{KEY_LENGTH}}})/")
CONTAINERS = ("PrimaryContainer", "Containers")


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


def live_endpoint(
    clients: Clients, deployment: Deployment, uris: Mapping[str, str]
) -> LiveEndpoint | None:
    """Return an endpoint as it runs; None: it is not deployed.

    `uris`: where the registry has each image of the code as it is now.
    """
    from botocore.exceptions import ClientError

    sagemaker, name = clients("sagemaker"), endpoint_name(deployment.environment, deployment.name)
    with calling(f"Endpoint {name}"):
        try:
            description = sagemaker.describe_endpoint(EndpointName=name)
        except ClientError as error:
            if "Could not find" in str(error):
                return None
            raise
        config = sagemaker.describe_endpoint_config(
            EndpointConfigName=description["EndpointConfigName"]
        )
        variants = tuple(_variants(sagemaker, description, config))
    compared = live_config(clients, deployment)
    drift = [] if compared.is_as_deployed else [
        f"serves endpoint config {compared.live}, its stack deployed {compared.deployed}: rolled "
        "back, or changed by hand"
    ]  # fmt: skip
    return LiveEndpoint(
        name=deployment.name,
        endpoint=name,
        status=compared.status,
        config=compared.live,
        stack_config=compared.deployed,
        variants=variants,
        alarms=alarms_in_alarm(clients, name),
        drift=(*drift, *file_drift(deployment, variants, uris)),
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
    sagemaker: Client, description: Mapping[str, Any], config: Mapping[str, Any]
) -> Iterator[LiveVariant]:
    configured = {
        variant["VariantName"]: variant
        for kind in ("ProductionVariants", "ShadowProductionVariants")
        for variant in config.get(kind, ())
    }
    for kind in ("ProductionVariants", "ShadowProductionVariants"):
        for variant in description.get(kind, ()):
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
