"""The state of an environment as far as it can be seen from here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from onboarding.deployment import Deployment, Target
from onboarding.names import artifact_bucket, endpoint_name, engine_archive_path
from roundhouse.aws.clients import Clients, calling, object_exists
from roundhouse.errors import AwsError
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import LOCAL, cloud_folder, open_session, valid_tree
from roundhouse.status.endpoints import EndpointState, endpoint_state

UNKNOWN = "unknown"
NOT_UP = "NotUp"
"""The reason where the local cloud is not up."""


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
    """An environment, and the local cloud's address when it is up; `endpoints` is what its files
    and locks say of them.

    `unknown` says why an archive or an endpoint's status is unknown; empty when none is.
    """

    environment: str
    cloud: str | None
    unknown: tuple[Unknown, ...]
    engines: tuple[EngineState, ...]
    endpoints: tuple[EndpointState, ...]

    def as_dict(self) -> dict[str, Any]:
        """The state as plain JSON."""
        return asdict(self)


def state_of(at: Paths, report: Report, environment: str) -> State:
    """Looks; without the cloud, or without credentials, what lies there is unknown, and said why."""
    from local_cloud import lifecycle
    from onboarding.resolve import deployments

    found = deployments(valid_tree(at), environment)
    address = lifecycle.find(cloud_folder(at))
    nobody = environment == LOCAL and address is None
    looking = Looking(clients=None if nobody else open_session(at, report, environment).clients)
    engines = tuple(
        engine_state(deployment, target, looking)
        for deployment in found
        for target in deployment.targets
    )
    return State(
        environment=environment,
        cloud=None if address is None else address.endpoint_url,
        unknown=tuple(looking.unknown.values()),
        engines=engines,
        endpoints=tuple(map(endpoint_state, found)),
    )


@dataclass(kw_only=True)
class Looking:
    """Asks the account, and keeps why it could not; a service that cannot be reached is not asked
    again. No clients: nobody.
    """

    clients: Clients | None
    unknown: dict[tuple[str, str], Unknown] = field(default_factory=dict)
    unreached: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.clients is None:
            for column in ("archive", "endpoint_status"):
                self._note(
                    Unknown(
                        column=column,
                        reason=NOT_UP,
                        sentence="The local cloud is not up: `roundhouse up` starts it.",
                    )
                )

    def at(self, column: str, look: Callable[[Clients], str]) -> str:
        """What a look finds; `unknown` where the account did not say."""
        if self.clients is None or column in self.unreached:
            return UNKNOWN
        try:
            return look(self.clients)
        except AwsError as fault:
            self._note(Unknown(column=column, reason=fault.reason, sentence=str(fault)))
            if not fault.is_answer:
                self.unreached.add(column)
            return UNKNOWN

    def _note(self, unknown: Unknown) -> None:
        self.unknown.setdefault((unknown.column, unknown.reason), unknown)


def engine_state(deployment: Deployment, target: Target, looking: Looking) -> EngineState:
    """One row."""
    entry = target.lock_entry
    return EngineState(
        model=target.model.name,
        endpoint=endpoint_name(deployment.environment, deployment.name),
        instance_type=target.instance_type.name,
        engine_key=target.engine_key,
        precision=None if entry is None else entry.manifest.precision,
        lock="not built" if entry is None else "built",
        archive=looking.at("archive", lambda clients: _archive(deployment, target, clients)),
        endpoint_status=looking.at(
            "endpoint_status", lambda clients: _endpoint(deployment, clients)
        ),
    )


def _archive(deployment: Deployment, target: Target, clients: Clients) -> str:
    there = object_exists(
        clients("s3"),
        artifact_bucket(deployment.environment),
        engine_archive_path(target.engine_key),
    )
    return "in S3" if there else "not in S3"


def _endpoint(deployment: Deployment, clients: Clients) -> str:
    from botocore.exceptions import ClientError

    name = endpoint_name(deployment.environment, deployment.name)
    with calling(f"Endpoint {name}"):
        try:
            return str(clients("sagemaker").describe_endpoint(EndpointName=name)["EndpointStatus"])
        except ClientError as error:
            if "Could not find" in str(error):
                return "not deployed"
            raise
