"""Checkpoints of text generators that a build makes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from onboarding.names import artifact_bucket, checkpoint_record_path
from onboarding.platform import instance_types
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.checkpoint_lock import CheckpointEntry, write_checkpoint_entry
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.quantizer_route import QuantizerRoute, quantizer_route
from roundhouse.aws.clients import object_bytes, object_exists
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
        bucket, path = artifact_bucket(session.environment), checkpoint_record_path(self.key)
        data = object_bytes(session.clients("s3"), bucket, path)
        if data is None:
            raise BuildFailedError(
                f"the build ended well, but s3://{bucket}/{path} is not there: it built another "
                "key; are all files of the tree saved and readable by the build?"
            )
        try:
            entry = CheckpointEntry.model_validate_json(data)
        except ValidationError as fault:
            raise BuildFailedError(
                f"the build ended well, but its record s3://{bucket}/{path} cannot be read by this "
                f"version of roundhouse ({fault.error_count()} fault(s)); delete the record and "
                "build again with the files of this version."
            ) from fault
        if (entry.checkpoint_key, entry.model) != (self.key, self.model):
            raise BuildFailedError(
                f"the build ended well, but its record s3://{bucket}/{path} is that of checkpoint "
                f"{entry.checkpoint_key} of {entry.model}, not {self.key} of {self.model}; delete "
                "the record and build again."
            )
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

    And those accepted whose files are gone from S3. Of `models` only, when any are named. Raises
    BuildFailedError in an environment whose files are those of a promotion.
    """
    requests = tuple(
        request
        for deployment in session.generators()
        if not models or deployment.name in models
        for request in _missing(session, deployment)
    )
    if requests and session.is_promoted:
        raise BuildFailedError(
            f"{requests[0].model}: its checkpoints cannot be promoted yet, and the promotion's "
            f"commit has none of {session.environment.name}; build them there, commit the lock, "
            "then promote that commit."
        )
    return requests


def _missing(session: Session, deployment: GenerationDeployment) -> Iterator[CheckpointRequest]:
    for key, scheme in deployment.wanted:
        yield CheckpointRequest(
            deployment=deployment, key=key, scheme=scheme, why="not in the lock"
        )
    s3, bucket = session.clients("s3"), artifact_bucket(session.environment)
    for entry in deployment.built:
        key = entry.checkpoint_key
        last = f"{checkpoint_prefix(key)}{entry.files[-1].path}"
        if entry.accepted and not object_exists(s3, bucket, last):
            why = "in the lock, but gone from S3"
            yield CheckpointRequest(deployment=deployment, key=key, scheme=entry.scheme, why=why)
