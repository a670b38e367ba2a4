"""What an account runs: endpoint configs, what they serve, images, instances, copies, alarms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from onboarding.deployment import DeployedEndpoint
from onboarding.names import endpoint_name
from roundhouse.aws.clients import Client, Clients, calling, or_absent, pages
from roundhouse.deploy.endpoint_steps import alarms_in_alarm
from roundhouse.deploy.prune import DEPLOYED_KEY

CONTAINERS = ("PrimaryContainer", "Containers")
KINDS = ("ProductionVariants", "ShadowProductionVariants")
IN_SERVICE = "InService"


@dataclass(frozen=True, kw_only=True)
class LiveVariant:
    """One running variant; `serves`: keys of engines or checkpoints.

    Empty where target models are loaded by request, or components have the models.
    """

    name: str
    instance_type: str
    instances: int
    desired_instances: int
    serves: tuple[str, ...]
    images: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LiveComponent:
    """One inference component; `base` None: it has copies of its own, else it is an adapter of it.

    `changed`: when, in UTC; `failure_reason`: of that change, set too where SageMaker went back.
    `serves`: the checkpoint's key, or where the adapter's files are.
    """

    name: str
    base: str | None
    status: str
    changed: str
    failure_reason: str | None
    copies: int
    desired_copies: int
    serves: str | None

    @property
    def is_zero(self) -> bool:
        """Return whether it is scaled to zero: the next request finds no copy."""
        counts = (self.copies, self.desired_copies)
        return self.base is None and self.status == IN_SERVICE and counts == (0, 0)


@dataclass(frozen=True, kw_only=True)
class LiveEndpoint:
    """One endpoint as it runs."""

    name: str
    endpoint: str
    status: str
    failure_reason: str | None
    config: str
    variants: tuple[LiveVariant, ...]
    components: tuple[LiveComponent, ...]
    alarms: tuple[str, ...]


def live_endpoint(clients: Clients, deployment: DeployedEndpoint) -> LiveEndpoint | None:
    """Return an endpoint as it runs; None: it is not deployed."""
    sagemaker, name = clients("sagemaker"), endpoint_name(deployment.environment, deployment.name)
    title = f"Endpoint {name}"
    endpoint = or_absent(lambda: sagemaker.describe_endpoint(EndpointName=name), title)
    if endpoint is None:
        return None
    with calling(title):
        config = sagemaker.describe_endpoint_config(
            EndpointConfigName=endpoint["EndpointConfigName"]
        )
        configured = {
            variant["VariantName"]: variant for kind in KINDS for variant in config.get(kind, ())
        }
        has_components = any("ModelName" not in variant for variant in configured.values())
        return LiveEndpoint(
            name=deployment.name,
            endpoint=name,
            status=str(endpoint["EndpointStatus"]),
            failure_reason=endpoint.get("FailureReason"),
            config=str(endpoint["EndpointConfigName"]),
            variants=tuple(_variants(sagemaker, endpoint, configured)),
            components=tuple(_components(sagemaker, name)) if has_components else (),
            alarms=alarms_in_alarm(clients, name),
        )


def _variants(
    sagemaker: Client, endpoint: Mapping[str, Any], configured: Mapping[str, Mapping[str, Any]]
) -> Iterator[LiveVariant]:
    for variant in (variant for kind in KINDS for variant in endpoint.get(kind, ())):
        spec = configured.get(variant["VariantName"], {})
        yield LiveVariant(
            name=variant["VariantName"],
            instance_type=str(spec.get("InstanceType", "")),
            instances=int(variant.get("CurrentInstanceCount", 0)),
            desired_instances=int(variant.get("DesiredInstanceCount", 0)),
            serves=_served_keys(sagemaker, spec.get("ModelName")),
            images=tuple(
                image["SpecifiedImage"]
                for image in variant.get("DeployedImages", ())
                if "SpecifiedImage" in image
            ),
        )


def _served_keys(sagemaker: Client, model: str | None) -> tuple[str, ...]:
    """Return the keys of the engines or checkpoints whose files a model of SageMaker has."""
    if model is None:
        return ()
    found = sagemaker.describe_model(ModelName=model)
    text = str([found.get(field) for field in CONTAINERS])
    return tuple(dict.fromkeys(DEPLOYED_KEY.findall(text)))


def _components(sagemaker: Client, endpoint: str) -> Iterator[LiveComponent]:
    """Yield the components of an endpoint, those with copies before their adapters."""
    found = []
    for item in pages(
        sagemaker,
        "list_inference_components",
        "InferenceComponents",
        EndpointNameEquals=endpoint,
    ):
        name = item["InferenceComponentName"]
        component = sagemaker.describe_inference_component(InferenceComponentName=name)
        specification = component.get("Specification", {})
        keys = _served_keys(sagemaker, specification.get("ModelName"))
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
                serves=next(iter(keys), specification.get("Container", {}).get("ArtifactUrl")),
            )
        )
    yield from sorted(found, key=lambda item: (item.base or "", item.name))
