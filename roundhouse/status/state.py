"""The state of an environment: its files and locks, and what its account holds and runs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from onboarding.deployment import DeployedEndpoint, Deployment
from onboarding.names import (
    artifact_bucket,
    checkpoint_record_path,
    endpoint_name,
    engine_archive_path,
)
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Clients, object_exists
from roundhouse.paths import Paths
from roundhouse.processes import Processes
from roundhouse.promoted_tree import environment_paths
from roundhouse.report import Report
from roundhouse.session import LOCAL, cloud_folder, open_session, valid_tree
from roundhouse.status.live import LiveEndpoint, live_endpoint

UNKNOWN = "unknown"
"""Of an account that nobody can ask: a local cloud that is not up."""
NOT_DEPLOYED = "not deployed"
READERS = 8


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

    def as_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON."""
        return asdict(self)


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
