"""The state of an environment: its files and locks, and what its account holds and runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from onboarding.deployment import Deployment, Target
from onboarding.names import artifact_bucket, endpoint_name, engine_archive_path
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Clients, object_exists
from roundhouse.errors import AwsError
from roundhouse.paths import Paths
from roundhouse.processes import Processes
from roundhouse.promoted_tree import environment_paths
from roundhouse.report import Report
from roundhouse.session import LOCAL, cloud_folder, open_session, valid_tree
from roundhouse.status.endpoints import GeneratorState, generator_state
from roundhouse.status.live import (
    LiveEndpoint,
    LiveGenerator,
    live_endpoint,
    live_generator,
)

UNKNOWN = "unknown"
NOT_UP = "NotUp"
"""The reason where the local cloud is not up."""
NOT_DEPLOYED = "not deployed"
COLUMNS = ("archive", "endpoint_status")
READERS = 8

T = TypeVar("T")
Live = LiveEndpoint | LiveGenerator | str
"""An endpoint as it runs, or why there is none."""


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """Why some of `column` is unknown: AWS's code or botocore's kind of error, and the sentence."""

    column: str
    reason: str
    sentence: str


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
    """An environment; `cloud`: the local cloud's address when it is up.

    `generators`: what files and locks say of them; `live` and `live_generators`: what runs, of
    those that are deployed; `unknown`: why something is unknown.
    """

    environment: str
    cloud: str | None
    unknown: tuple[Unknown, ...]
    engines: tuple[EngineState, ...]
    live: tuple[LiveEndpoint, ...] = ()
    generators: tuple[GeneratorState, ...] = ()
    live_generators: tuple[LiveGenerator, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON."""
        return asdict(self)


def state_of(paths: Paths, report: Report, environment: str) -> State:
    """Return the state; what a cloud out of reach holds is unknown, with the reason."""
    from local_cloud import lifecycle
    from onboarding.generation_resolve import generation_deployments
    from onboarding.resolve import deployments

    own = environment_paths(paths, environment, Processes())
    tree = valid_tree(own)
    wanted = deployments(tree, environment)
    address = lifecycle.find(cloud_folder(paths))
    is_down = environment == LOCAL and address is None
    looking = Looking(clients=None if is_down else open_session(paths, report, environment).clients)

    def live(deployment: Deployment | GenerationDeployment) -> Live:
        def look(clients: Clients) -> Live:
            if isinstance(deployment, GenerationDeployment):
                return live_generator(clients, deployment) or NOT_DEPLOYED
            return live_endpoint(clients, deployment) or NOT_DEPLOYED

        return looking.find("endpoint_status", look) or UNKNOWN

    generators = generation_deployments(tree, environment)
    described: list[Deployment | GenerationDeployment] = [*wanted, *generators]
    with ThreadPoolExecutor(READERS) as readers:
        names = (item.name for item in described)
        running = dict(zip(names, readers.map(live, described), strict=True))
    engines = tuple(
        engine_state(deployment, target, looking, running[deployment.name])
        for deployment in wanted
        for target in deployment.targets
    )
    return State(
        environment=environment,
        cloud=None if address is None else address.endpoint_url,
        unknown=tuple(looking.unknown[key] for key in sorted(looking.unknown)),
        engines=engines,
        live=tuple(item for item in running.values() if isinstance(item, LiveEndpoint)),
        generators=tuple(
            generator_state(item, status_of(running[item.name])) for item in generators
        ),
        live_generators=tuple(item for item in running.values() if isinstance(item, LiveGenerator)),
    )


@dataclass(kw_only=True)
class Looking:
    """Requests to the account, and why they failed; `clients` None: there is no account.

    A service that cannot be reached is not asked again.
    """

    clients: Clients | None
    unknown: dict[tuple[str, str], Unknown] = field(default_factory=dict)
    unreached: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.clients is None:
            message = "The local cloud is not up: `roundhouse up` starts it."
            for column in COLUMNS:
                self._note(Unknown(column=column, reason=NOT_UP, sentence=message))

    def find(self, column: str, look: Callable[[Clients], T]) -> T | None:
        """Return the result of a request; None where it failed."""
        if self.clients is None or column in self.unreached:
            return None
        try:
            return look(self.clients)
        except AwsError as error:
            self._note(Unknown(column=column, reason=error.reason, sentence=str(error)))
            if not error.is_answer:
                self.unreached.add(column)
            return None

    def _note(self, unknown: Unknown) -> None:
        self.unknown.setdefault((unknown.column, unknown.reason), unknown)


def status_of(live: Live) -> str:
    """Return the status of an endpoint, or why it has none."""
    return live if isinstance(live, str) else live.status


def engine_state(
    deployment: Deployment, target: Target, looking: Looking, live: Live
) -> EngineState:
    """Return the row of one model; `live`: its endpoint."""
    entry = target.lock_entry
    bucket, key = artifact_bucket(deployment.environment), engine_archive_path(target.engine_key)
    is_there = looking.find("archive", lambda clients: object_exists(clients("s3"), bucket, key))
    return EngineState(
        model=target.model.name,
        endpoint=endpoint_name(deployment.environment, deployment.name),
        instance_type=target.instance_type.name,
        engine_key=target.engine_key,
        precision=None if entry is None else entry.manifest.precision,
        lock="not built" if entry is None else "built",
        archive={None: UNKNOWN, True: "in S3", False: "not in S3"}[is_there],
        endpoint_status=status_of(live),
    )
