"""Engines that a build makes, and those that it could not make."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from onboarding.deployment import DeployedEndpoint, Deployment, Target
from onboarding.lock import BuiltEntry, LockEntry, write_lock_entry
from onboarding.names import artifact_bucket, checkpoint_record_path, engine_record_path
from onboarding.plan_source import NOT_REUSED, PlanSource, locked_plans, plan_sources
from onboarding.platform import PACKAGING_ROUTE, BuildRoute, build_route, instance_types
from onboarding.signature import parse_public_key
from onboarding.text_generation.checkpoint_key import (
    QuantizerRoute,
    checkpoint_prefix,
    quantizer_route,
)
from onboarding.text_generation.checkpoint_lock import CheckpointEntry
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Client, bucket_exists, list_objects, object_bytes, object_exists
from roundhouse.errors import BuildFailedError
from roundhouse.session import Session


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """One artifact that must be built, and why; each kind of workload has its own subclass."""

    deployment: DeployedEndpoint
    why: str

    @property
    def key(self) -> str:
        """Return the key of what is built."""
        raise NotImplementedError

    @property
    def model(self) -> str:
        """Return the model's name."""
        raise NotImplementedError

    @property
    def is_locked(self) -> bool:
        """Return whether a lock has it, and only what it names is gone from S3."""
        raise NotImplementedError

    def title(self, *, of_several: bool) -> str:
        """Return what a step that builds it is called; `of_several` of its model's artifacts."""
        raise NotImplementedError

    def document(self) -> dict[str, Any]:
        """Return it as the state machine's input has it."""
        raise NotImplementedError

    def record(self, session: Session) -> BuiltEntry:
        """Write the record that was published into the model's lock. Raises BuildFailedError."""
        entry = self.completed(self.published_entry(session))
        write_lock_entry(session.paths.tree / session.environment.locks, self.model, entry)
        return entry

    @property
    def published_record(self) -> tuple[str, type[BuiltEntry]]:
        """Return where a build publishes its record, and of what kind that is."""
        raise NotImplementedError

    def completed(self, entry: BuiltEntry) -> BuiltEntry:
        """Return a published entry with what only the environment's files know."""
        return entry

    def published_entry(self, session: Session) -> BuiltEntry:
        """Return the lock entry that a build published. Raises BuildFailedError."""
        path, kind = self.published_record
        bucket = artifact_bucket(session.environment)
        where = f"s3://{bucket}/{path}"
        data = object_bytes(session.clients("s3"), bucket, path)
        if data is None:
            raise BuildFailedError(
                f"the build ended well, but {where} is not there: it built another key; are all "
                "files of the tree saved and readable by the build?"
            )
        try:
            entry = kind.model_validate_json(data)
        except ValidationError as fault:
            raise BuildFailedError(
                f"the build ended well, but its record {where} cannot be read by this version of "
                f"roundhouse ({fault.error_count()} fault(s)); delete the record and build again "
                "with the files of this version."
            ) from fault
        if (entry.key, entry.built_model) != (self.key, self.model):
            raise BuildFailedError(
                f"the build ended well, but its record {where} is that of {entry.key} of "
                f"{entry.built_model}, not {self.key} of {self.model}; delete the record and build "
                "again."
            )
        return entry


@dataclass(frozen=True, kw_only=True)
class EngineRequest(BuildRequest):
    """One engine that must be built, and why."""

    deployment: Deployment
    target: Target
    plan_from: PlanSource | None = None
    """The engine whose plan it is packaged of; None: its plan is compiled."""
    not_reused: tuple[str, ...] = ()
    """Why plans that locks name are not reused, a sentence each."""

    @property
    def key(self) -> str:
        """Return the engine's key."""
        return self.target.engine_key

    @property
    def model(self) -> str:
        """Return the model's name."""
        return self.target.model.name

    @property
    def is_locked(self) -> bool:
        """Return whether a lock has it, and only its archive is gone."""
        return self.target.lock_entry is not None

    def title(self, *, of_several: bool) -> str:
        """Return what a step that builds it is called; `of_several` of its model's engines."""
        capability = self.target.instance_type.compute_capability
        verb = "Building" if self.plan_from is None else "Packaging"
        return f"{verb} {self.model}{f' for {capability}' if of_several else ''} ({self.reason})"

    @property
    def instance_type(self) -> str:
        """Return the type whose GPU the engine is for."""
        return self.target.instance_type.name

    @property
    def compile_route(self) -> BuildRoute:
        """Where its plan is compiled, if it must be."""
        environment = self.deployment.environment
        return build_route(
            self.target.build_capability,
            codebuild_gpu=environment.has_codebuild_gpu,
            fleet=environment.gpu_fleet_arn is not None,
        )

    @property
    def route(self) -> BuildRoute:
        """Where it is built."""
        return self.compile_route if self.plan_from is None else PACKAGING_ROUTE

    @property
    def reason(self) -> str:
        """Return why it is built, and of whose plan or why of none."""
        if self.plan_from is None:
            return "; ".join((self.why, *self.not_reused))
        return f"{self.why}; of the plan of engine {self.plan_from.engine_key}"

    def document(self) -> dict[str, Any]:
        """Return the engine as the state machine's input has it."""
        engine = {
            "engineKey": self.key,
            "model": self.model,
            "computeCapability": self.target.instance_type.compute_capability,
            "route": self.compile_route,
            "instanceType": self.target.instance_type.name,
        }
        if self.plan_from is None:
            return engine
        # A state machine of before knows neither, and compiles.
        return {**engine, "planFrom": str(self.plan_from), "planRoute": self.route}

    @property
    def published_record(self) -> tuple[str, type[BuiltEntry]]:
        """Return where the engine's record lies, beside its archive."""
        return engine_record_path(self.key), LockEntry

    def completed(self, entry: BuiltEntry) -> BuiltEntry:
        """Return the entry with the plan's key, by which plans are looked for in locks."""
        return entry.model_copy(update={"plan_key": self.target.plan_key})


def reused_plans(session: Session, requests: Sequence[EngineRequest]) -> tuple[EngineRequest, ...]:
    """Return requests with the engines whose plans they are packaged of.

    Those are engines in the environment's locks, whatever their model, whose archives are in S3 and
    signed as the environment asks; or else the first of these requests with the same plan.
    """
    # Ensembles have no plan.
    wanted = {key for request in requests if (key := request.target.plan_key) is not None}
    locks = session.paths.tree / session.environment.locks
    locked: dict[str, tuple[LockEntry, ...]] = {}
    faults: dict[str, tuple[str, ...]] = {}
    building = {request.key for request in requests}
    for plan, entries in locked_plans(locks, wanted).items():
        for entry in entries:
            if entry.manifest.engine_key in building:
                continue
            fault = _source_fault(session, entry)
            if fault is None:
                locked[plan] = (*locked.get(plan, ()), entry)
            else:
                faults[plan] = (*faults.get(plan, ()), fault)
    sources = plan_sources((request.target for request in requests), locked)
    return tuple(
        replace(
            request,
            plan_from=sources.get(request.key),
            not_reused=faults.get(request.target.plan_key or "", ()),
        )
        for request in requests
    )


def _source_fault(session: Session, entry: LockEntry) -> str | None:
    """Return why an engine's plan is not reused; None where nothing is known against it."""
    bucket, key = artifact_bucket(session.environment), entry.manifest.engine_key
    signers = [parse_public_key(signer) for signer in session.environment.trusted_signers]
    fault = entry.signature_fault(signers) if signers else None
    if fault is not None:
        return f"the plan of engine {key} {NOT_REUSED}: {fault}"
    if not object_exists(session.clients("s3"), bucket, entry.archive.path):
        return f"the plan of engine {key} {NOT_REUSED}: its archive is gone from S3"
    return None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One engine that was not built: the reason in a sentence, and where its log lies."""

    model: str
    engine_key: str
    reason: str
    log: str

    def as_dict(self) -> dict[str, str]:
        """Plain JSON, in the build machine's words."""
        return {
            "model": self.model,
            "engineKey": self.engine_key,
            "reason": self.reason,
            "log": self.log,
        }


class EnginesNotBuiltError(BuildFailedError):
    """Some engines were not built. The others are published and in their locks: `built`."""

    def __init__(self, built: Sequence[BuiltEntry], failures: Sequence[Failure]) -> None:
        super().__init__(_message(built, failures))
        self.built = tuple(built)
        self.failures = tuple(failures)


def outcome(built: Sequence[BuiltEntry], failures: Sequence[Failure]) -> dict[str, Any]:
    """Return both as plain JSON."""
    return {
        "built": [entry.model_dump(mode="json") for entry in built],
        "failed": [failure.as_dict() for failure in failures],
    }


def _message(built: Sequence[BuiltEntry], failures: Sequence[Failure]) -> str:
    reasons = [" ".join(failure.reason.split()).rstrip(".") for failure in failures]
    if len(failures) == 1:
        (only,) = failures
        others = f" {len(built)} engines beside it are built and in their locks." if built else ""
        return (
            f"{only.model}: {reasons[0]}. The lock and the endpoints are as they were.{others} "
            f"Log: {only.log}"
        )
    others = f" The other {len(built)} are built and in their locks." if built else ""
    head = (
        f"{len(failures)} of {len(built) + len(failures)} engines were not built; their "
        f"locks and endpoints are as they were.{others}"
    )
    pairs = zip(failures, reasons, strict=True)
    lines = (f"  {failure.model}: {reason}. Log: {failure.log}" for failure, reason in pairs)
    return "\n".join([head, *lines])


@dataclass(frozen=True, kw_only=True)
class CheckpointRequest(BuildRequest):
    """One checkpoint that must be built, and why."""

    deployment: GenerationDeployment
    checkpoint_key: str
    scheme: str

    @property
    def key(self) -> str:
        """Return the checkpoint's key."""
        return self.checkpoint_key

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

    @property
    def published_record(self) -> tuple[str, type[BuiltEntry]]:
        """Return where the checkpoint's record lies, beside the prefix of its files."""
        return checkpoint_record_path(self.key), CheckpointEntry


def format_entry(entry: BuiltEntry, not_reused: str = "") -> str:
    """Return what was built, in a few words; `not_reused`: why its plan was compiled."""
    if isinstance(entry, LockEntry):
        reason = " ".join(not_reused.split()).rstrip(".")
        compiled = f"; its plan was compiled: {reason}" if reason else ""
        size = f"{entry.archive.size_bytes / 1e6:.0f} MB"
        return f"{entry.manifest.precision} engine {entry.manifest.engine_key}, {size}{compiled}"
    if not isinstance(entry, CheckpointEntry):
        return f"{entry.noun} {entry.key}"
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
            deployment=deployment, checkpoint_key=key, scheme=scheme, why="not in the lock"
        )
    s3, bucket = session.clients("s3"), artifact_bucket(session.environment)
    for entry in deployment.built:
        key = entry.checkpoint_key
        if entry is not deployment.entry and (session.is_promoted or key in deployment.held_by):
            continue
        if entry.accepted and not _is_whole(s3, bucket, entry):
            why = "in the lock, but gone from S3"
            yield CheckpointRequest(
                deployment=deployment, checkpoint_key=key, scheme=entry.scheme, why=why
            )


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
