"""Checkpoints of text generators that a build makes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from onboarding.names import artifact_bucket, checkpoint_record_path
from onboarding.platform import instance_types
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.checkpoint_lock import CheckpointEntry, write_checkpoint_entry
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.quantizer_route import QuantizerRoute, quantizer_route
from roundhouse.aws.clients import Client, bucket_exists, list_objects
from roundhouse.deploy.builds.records import another_record, published_record
from roundhouse.errors import BuildFailedError
from roundhouse.session import Session


@dataclass(frozen=True, kw_only=True)
class CheckpointRequest:
    """One checkpoint that must be built, and why."""

    deployment: GenerationDeployment
    key: str
    scheme: str
    why: str

    @property
    def model(self) -> str:
        """Return the text generator's name."""
        return self.deployment.name

    @property
    def is_locked(self) -> bool:
        """Return whether the lock has it, and only its files are gone."""
        return self.key not in dict(self.deployment.wanted)

    @property
    def instance_type(self) -> str:
        """Return the type that would serve it, whose GPU a training job runs on."""
        return self.deployment.plans[self.key].instance_type

    @property
    def route(self) -> QuantizerRoute:
        """Return where it is built."""
        return quantizer_route(self.deployment.spec, self.scheme, self.deployment.checkpoint)

    def title(self, *, of_several: bool) -> str:
        """Return what a step that builds it is called."""
        return f"Building {self.model} in {self.scheme} ({self.why})"

    def document(self) -> dict[str, Any]:
        """Return the checkpoint as the state machine's input has it."""
        capability = instance_types()[self.instance_type].compute_capability
        return {
            "engineKey": self.key,
            "model": self.model,
            "computeCapability": capability,
            "route": self.route,
            "instanceType": self.instance_type,
            "scheme": self.scheme,
        }

    def record(self, session: Session) -> CheckpointEntry:
        """Write the record that was published into the model's lock. Raises BuildFailedError."""
        path = checkpoint_record_path(self.key)
        entry = published_record(session, path, CheckpointEntry)
        found, wanted = (entry.checkpoint_key, entry.model), (self.key, self.model)
        if found != wanted:
            raise another_record(session, path, found, wanted)
        locks = session.paths.tree / session.environment.locks
        write_checkpoint_entry(locks, self.model, entry)
        return entry


def format_entry(entry: CheckpointEntry) -> str:
    """Return what a built checkpoint is, in a few words."""
    size = f"{sum(file.size_bytes for file in entry.files) / 1e6:,.0f} MB"
    verdict = "" if entry.accepted else f", refused: {(entry.reason or 'no reason').rstrip('.')}"
    return f"{entry.scheme} checkpoint {entry.checkpoint_key}, {size}{verdict}"


def missing_checkpoints(
    session: Session, models: Collection[str] = ()
) -> tuple[CheckpointRequest, ...]:
    """Return the checkpoints that would hold their SLO and have no lock entry.

    And those accepted of which S3 lacks a file, or has it in another size. Of `models` only, when
    any are named. Raises BuildFailedError for checkpoints that the environment receives by
    promotion.
    """
    requests = tuple(
        request
        for deployment in session.generators()
        if not models or deployment.name in models
        for request in _missing(session, deployment)
    )
    refuse_received(
        session,
        "Checkpoints",
        [
            request.model
            for request in requests
            if session.is_promoted or request.key in request.deployment.held_by
        ],
    )
    return requests


def _missing(session: Session, deployment: GenerationDeployment) -> Iterator[CheckpointRequest]:
    # Of what is promoted only the checkpoint that serves was copied.
    is_complete = session.is_promoted and deployment.entry is not None
    for key, scheme in () if is_complete else deployment.wanted:
        yield CheckpointRequest(
            deployment=deployment, key=key, scheme=scheme, why="not in the lock"
        )
    s3, bucket = session.clients("s3"), artifact_bucket(session.environment)
    for entry in deployment.built:
        key = entry.checkpoint_key
        if entry is not deployment.entry and (session.is_promoted or key in deployment.held_by):
            continue
        if entry.accepted and not _is_whole(s3, bucket, entry):
            why = "in the lock, but gone from S3"
            yield CheckpointRequest(deployment=deployment, key=key, scheme=entry.scheme, why=why)


def _is_whole(s3: Client, bucket: str, entry: CheckpointEntry) -> bool:
    """Return whether a bucket has every file of a checkpoint in its size."""
    prefix = checkpoint_prefix(entry.checkpoint_key)
    held = list_objects(s3, bucket, prefix) if bucket_exists(s3, bucket) else {}
    return all(held.get(f"{prefix}{file.path}") == file.size_bytes for file in entry.files)


def refuse_received(session: Session, what: str, models: Collection[str]) -> None:
    """Raise BuildFailedError for what is another environment's, or of a promotion.

    A second build of a key has other bytes, and would not be what was tested. `what`: engines or
    checkpoints, of these models.
    """
    source, own = session.environment.promotes_from, session.environment.name
    if models:
        raise BuildFailedError(
            f"{what} of {', '.join(sorted(set(models)))} are not in {own}, which receives them "
            f"from {source} and builds none of them again: `roundhouse promote --from {source} "
            f"--to {own}` copies them."
        )
