"""The state of an environment as far as it can be seen from here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from onboarding.deployment import Deployment, Target
from onboarding.names import artifact_bucket, endpoint_name, engine_archive_path
from workbench.aws import Clients, calling, object_exists
from workbench.endpoint_state import EndpointState, endpoint_state
from workbench.errors import DeskError
from workbench.places import Places
from workbench.report import Report
from workbench.road import LOCAL, cloud_state, open_road, sound_tree

UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class EngineState:
    """One model at its endpoint: what its lock says, and what the account holds."""

    model: str
    endpoint: str
    instance_type: str
    engine_key: str
    precision: str | None
    lock: str
    archive: str
    endpoint_status: str


@dataclass(frozen=True, kw_only=True)
class State:
    """An environment, and the local cloud's address when it is up; `endpoints` is what its files and locks say of them."""

    environment: str
    cloud: str | None
    engines: tuple[EngineState, ...]
    endpoints: tuple[EndpointState, ...]

    def as_dict(self) -> dict[str, Any]:
        """The state as plain JSON."""
        return asdict(self)


def state_of(at: Places, report: Report, environment: str) -> State:
    """Looks; without the cloud, or without credentials, what lies there is unknown."""
    from onboarding.resolve import deployments
    from workbench.local_cloud import lifecycle

    found = deployments(sound_tree(at), environment)
    address = lifecycle.find(cloud_state(at))
    clients = None if environment == LOCAL and address is None else open_road(at, report, environment).clients
    pairs = [(deployment, target) for deployment in found for target in deployment.targets]
    return State(
        environment=environment,
        cloud=None if address is None else address.endpoint_url,
        engines=tuple(engine_state(deployment, target, clients) for deployment, target in pairs),
        endpoints=tuple(map(endpoint_state, found)),
    )


def engine_state(deployment: Deployment, target: Target, clients: Clients | None) -> EngineState:
    """One row; `clients` None: nobody to ask."""
    entry = target.lock_entry
    return EngineState(
        model=target.model.name,
        endpoint=endpoint_name(deployment.environment, deployment.name),
        instance_type=target.instance_type.name,
        engine_key=target.engine_key,
        precision=None if entry is None else entry.manifest.precision,
        lock="not built" if entry is None else "built",
        archive=UNKNOWN if clients is None else _archive(deployment, target, clients),
        endpoint_status=UNKNOWN if clients is None else _endpoint(deployment, clients),
    )


def _archive(deployment: Deployment, target: Target, clients: Clients) -> str:
    try:
        there = object_exists(clients("s3"), artifact_bucket(deployment.environment), engine_archive_path(target.engine_key))
    except DeskError:
        return UNKNOWN
    return "in S3" if there else "not in S3"


def _endpoint(deployment: Deployment, clients: Clients) -> str:
    from botocore.exceptions import ClientError

    try:
        with calling("SageMaker"):
            name = endpoint_name(deployment.environment, deployment.name)
            try:
                return str(clients("sagemaker").describe_endpoint(EndpointName=name)["EndpointStatus"])
            except ClientError as error:
                if "Could not find" in str(error):
                    return "not deployed"
                raise
    except DeskError:
        return UNKNOWN
