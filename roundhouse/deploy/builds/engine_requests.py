"""Engines that a build makes, and those that it could not make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from onboarding.deployment import Deployment, Target, signature_fault
from onboarding.environment_spec import EnvironmentSpec
from onboarding.lock import LockEntry
from onboarding.names import artifact_bucket
from onboarding.plan_source import NOT_REUSED, PlanSource, locked_plans, plan_keys, plan_sources
from onboarding.platform import PACKAGING_ROUTE, BuildRoute, build_route
from onboarding.signature import parse_public_key
from onboarding.text_generation.checkpoint_lock import CheckpointEntry
from roundhouse.aws.clients import object_exists
from roundhouse.errors import BuildFailedError
from roundhouse.session import Session

BuiltEntry = LockEntry | CheckpointEntry
"""The lock entry of what a build made."""


@dataclass(frozen=True, kw_only=True)
class EngineRequest:
    """One engine that must be built, and why."""

    deployment: Deployment
    target: Target
    why: str
    plan_from: PlanSource | None = None
    """The engine whose plan it is packaged of; None: its plan is compiled."""
    not_reused: tuple[str, ...] = ()
    """Why plans that locks name are not reused, a sentence each."""

    @property
    def engine_key(self) -> str:
        """Return the engine's key."""
        return self.target.engine_key

    @property
    def model(self) -> str:
        """Return the model's name."""
        return self.target.model.name

    def title(self, *, of_several: bool) -> str:
        """Return what a step that builds it is called; `of_several` of its model's engines."""
        capability = self.target.instance_type.compute_capability
        verb = "Building" if self.plan_from is None else "Packaging"
        return f"{verb} {self.model}{f' for {capability}' if of_several else ''} ({self.reason})"

    @property
    def compile_route(self) -> BuildRoute:
        """Where its plan is compiled, if it must be."""
        return compile_route(self.deployment.environment, self.target)

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


def compile_route(environment: EnvironmentSpec, target: Target) -> BuildRoute:
    """Return where an environment compiles the plan of an engine."""
    return build_route(
        target.build_capability,
        codebuild_gpu=environment.has_codebuild_gpu,
        fleet=environment.gpu_fleet_arn is not None,
    )


def reused_plans(session: Session, requests: Sequence[EngineRequest]) -> tuple[EngineRequest, ...]:
    """Return requests with the engines whose plans they are packaged of.

    Those are engines in the environment's locks, whatever their model, whose archives are in S3 and
    signed as the environment asks; or else the first of these requests with the same plan.
    """
    wanted = plan_keys(request.target for request in requests)
    locks = session.paths.tree / session.environment.locks
    locked: dict[str, tuple[LockEntry, ...]] = {}
    faults: dict[str, tuple[str, ...]] = {}
    building = {request.engine_key for request in requests}
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
            plan_from=sources.get(request.engine_key),
            not_reused=faults.get(request.target.plan_key or "", ()),
        )
        for request in requests
    )


def _source_fault(session: Session, entry: LockEntry) -> str | None:
    """Return why an engine's plan is not reused; None where nothing is known against it."""
    bucket, key = artifact_bucket(session.environment), entry.manifest.engine_key
    signers = [parse_public_key(signer) for signer in session.environment.trusted_signers]
    fault = signature_fault(entry, signers) if signers else None
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
