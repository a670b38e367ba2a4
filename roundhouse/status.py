"""The state of an environment: its files and locks, what its account runs, and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from onboarding.deployment import DeployedEndpoint, Deployment
from onboarding.names import (
    artifact_bucket,
    checkpoint_record_path,
    endpoint_name,
    engine_archive_path,
)
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Client, Clients, calling, object_exists, or_absent, pages
from roundhouse.deploy.endpoint_steps import alarms_in_alarm
from roundhouse.deploy.prune import DEPLOYED_KEY
from roundhouse.paths import Paths
from roundhouse.processes import Processes
from roundhouse.promoted_tree import environment_paths
from roundhouse.report import Report
from roundhouse.session import LOCAL, cloud_folder, open_session, valid_tree
from roundhouse.table import Table, table

CONTAINERS = ("PrimaryContainer", "Containers")
KINDS = ("ProductionVariants", "ShadowProductionVariants")
IN_SERVICE = "InService"
UNKNOWN = "unknown"
"""Of an account that nobody can ask: a local cloud that is not up."""
NOT_DEPLOYED = "not deployed"
READERS = 8


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


@dataclass(frozen=True, kw_only=True)
class ArtifactState:
    """One engine or checkpoint of a model: what its lock says, and what the account holds.

    `form`: an engine's precision, None before it is built, or a checkpoint's scheme.
    """

    model: str
    endpoint: str
    instance_type: str
    key: str
    form: str | None
    lock: str
    archive: str
    endpoint_status: str


@dataclass(frozen=True, kw_only=True)
class State:
    """An environment; `cloud`: the local cloud's address when it is up.

    `live`: what runs, of endpoints that are deployed; `notes`: why a text generator has nothing to
    serve, or a checkpoint was refused.
    """

    environment: str
    cloud: str | None
    artifacts: tuple[ArtifactState, ...]
    notes: tuple[str, ...] = ()
    live: tuple[LiveEndpoint, ...] = ()


def state_of(paths: Paths, report: Report, environment: str) -> State:
    """Return the state; of a local cloud that is not up what its files say.

    Raises AwsError where the account cannot be asked.
    """
    from local_cloud import lifecycle
    from onboarding.workload import endpoint_deployments

    own = environment_paths(paths, environment, Processes())
    endpoints = endpoint_deployments(valid_tree(own), environment)
    address = lifecycle.find(cloud_folder(paths))
    is_down = environment == LOCAL and address is None
    clients = None if is_down else open_session(paths, report, environment).clients

    def running(deployment: DeployedEndpoint) -> LiveEndpoint | None:
        return None if clients is None else live_endpoint(clients, deployment)

    with ThreadPoolExecutor(READERS) as readers:
        live = tuple(readers.map(running, endpoints))
    artifacts = tuple(
        state
        for deployment, found in zip(endpoints, live, strict=True)
        for state in artifact_states(deployment, clients, found)
    )
    return State(
        environment=environment,
        cloud=None if address is None else address.endpoint_url,
        artifacts=artifacts,
        notes=tuple(note for deployment in endpoints for note in endpoint_notes(deployment)),
        live=tuple(item for item in live if item is not None),
    )


def artifact_states(
    deployment: DeployedEndpoint, clients: Clients | None, live: LiveEndpoint | None
) -> Iterator[ArtifactState]:
    """Yield each engine or checkpoint of an endpoint; `live`: the endpoint, if it is deployed."""
    bucket, status = artifact_bucket(deployment.environment), UNKNOWN
    if clients is not None:
        status = NOT_DEPLOYED if live is None else live.status

    def state(path: str, **own: Any) -> ArtifactState:
        if clients is not None:
            is_there = object_exists(clients("s3"), bucket, path)
            own["archive"] = "in S3" if is_there else "not in S3"
        return ArtifactState(
            endpoint=endpoint_name(deployment.environment, deployment.name),
            endpoint_status=status,
            **{"archive": UNKNOWN, **own},
        )

    if isinstance(deployment, GenerationDeployment):
        for plan in deployment.checkpoints:
            yield state(
                checkpoint_record_path(plan.checkpoint_key),
                model=deployment.name,
                instance_type=deployment.candidate.instance_type,
                key=plan.checkpoint_key,
                form=plan.scheme,
                lock=plan.use,
            )
    elif isinstance(deployment, Deployment):
        for target in deployment.targets:
            entry = target.lock_entry
            yield state(
                engine_archive_path(target.engine_key),
                model=target.model.name,
                instance_type=target.instance_type.name,
                key=target.engine_key,
                form=None if entry is None else entry.manifest.precision,
                lock="not built" if entry is None else "built",
            )


def endpoint_notes(deployment: DeployedEndpoint) -> Iterator[str]:
    """Yield why a text generator has nothing to serve, or why checkpoints were refused."""
    if not isinstance(deployment, GenerationDeployment):
        return
    if deployment.problem is not None:
        yield deployment.problem
        return
    for entry in deployment.built:
        if entry.reason is not None:
            yield f"{deployment.name} in {entry.scheme}: {entry.reason}"


def state_table(state: State) -> Table:
    """Return a table with one row per engine and checkpoint."""
    rows = (
        (
            item.model,
            item.key,
            item.lock if item.form is None else f"{item.lock}: {item.form}",
            item.archive,
            f"{item.endpoint} ({item.instance_type}): {item.endpoint_status}",
        )
        for item in state.artifacts
    )
    columns = ("Model", "Engine or checkpoint", "Lock", "Archive", "Endpoint")
    return table(columns, rows, title=f"Environment {state.environment}")


def live_table(live: Sequence[LiveEndpoint]) -> Table:
    """Return a table with one row per running variant."""
    rows = (
        (
            f"{endpoint.endpoint}: {endpoint.status}",
            endpoint.config,
            f"{variant.name}: "
            + _running(variant.instances, variant.desired_instances, variant.instance_type),
            ", ".join(variant.serves) or ("components" if endpoint.components else "target models"),
            ", ".join(image.rpartition("/")[2] for image in variant.images),
            "\n".join(endpoint.alarms) or "none",
        )
        for endpoint in live
        for variant in endpoint.variants
    )
    columns = ("Endpoint", "Endpoint config", "Instances", "Serves", "Image", "In ALARM")
    return table(columns, rows, title="Endpoints as they run")


def components_table(live: Sequence[LiveEndpoint]) -> Table:
    """Return a table with one row per inference component."""
    rows = (
        (
            item.name if item.base is None else f"{item.name} (adapter of {item.base})",
            "scaled to zero" if item.is_zero else item.status,
            _running(item.copies, item.desired_copies),
            item.serves or "",
        )
        for endpoint in live
        for item in endpoint.components
    )
    columns = ("Inference component", "State", "Copies", "Serves")
    return table(columns, rows, title="Inference components as they run")


def live_lines(live: Sequence[LiveEndpoint]) -> Iterator[str]:
    """Yield why endpoints failed, when components changed, and what is scaled to zero."""
    for endpoint in live:
        if endpoint.failure_reason:
            yield f"{endpoint.endpoint}: {endpoint.failure_reason}"
        for component in endpoint.components:
            reason = component.failure_reason
            why = f": {reason.rstrip('.')}" if reason else ""
            yield f"{component.name}: {component.status}, changed {component.changed}{why}."
            if component.is_zero:
                yield f"{component.name}: no copy runs; the next request fails and asks for one."


def _running(current: int, desired: int, instance_type: str = "") -> str:
    count = f"{desired}" if current == desired else f"{current} of {desired} wanted"
    return f"{count} x {instance_type}" if instance_type else count
