"""What a build would do: `roundhouse build --dry-run`."""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.lock import LockEntry, read_lock
from onboarding.text_generation.checkpoint_lock import read_generation_lock
from onboarding.text_generation.quantizer_route import QUANTIZER
from roundhouse.deploy.builds.checkpoint_requests import CheckpointRequest
from roundhouse.deploy.builds.engine_requests import EngineRequest
from roundhouse.gitops.build_estimates import (
    checkpoint_usd,
    compile_estimate,
    packaging_estimate,
)
from roundhouse.money import usd
from roundhouse.session import Session

COLUMNS = ("model", "engine", "what", "why", "where", "minutes", "USD")
MACHINES = {
    "cpu": "CodeBuild, Linux",
    "gpu": "CodeBuild, Linux GPU (A10G)",
    "fleet": "the environment's CodeBuild fleet",
    "training-job": "SageMaker training job on",
    "quantizer": "CodeBuild, Linux",
    "quantizer-job": "SageMaker training job on",
}


@dataclass(frozen=True, kw_only=True)
class BuildPreview:
    """One engine to build; `minutes` and `usd` None: not known, and `origin` says why.

    `plan_from`: the engine whose plan it is packaged of; None: its plan is compiled.
    """

    model: str
    engine_key: str
    why: str
    route: str
    machine: str
    minutes: float | None
    usd: float | None
    origin: str
    plan_from: str | None = None
    scheme: str | None = None
    """Of a text generator's checkpoint; None: an engine."""

    @property
    def action(self) -> str:
        """Return what is done."""
        if self.scheme is not None:
            return f"checkpoint in {self.scheme}"
        return "compile" if self.plan_from is None else "repackage"

    def cells(self) -> tuple[str, ...]:
        """Return the row of a table."""
        minutes = f"unknown: {self.origin}" if self.minutes is None else f"{self.minutes:g}"
        return (
            self.model,
            self.engine_key,
            self.action,
            self.why,
            self.machine,
            minutes,
            usd(self.usd),
        )


def build_preview(
    session: Session, request: EngineRequest, *, like: str | None = None
) -> BuildPreview:
    """Return where an engine is built, and what its model's last build took.

    `like`: another model whose last build counts where this one has none.
    """
    environment, instance, route = session.environment, request.target.instance_type, request.route
    model, source = request.target.model.name, request.plan_from
    last = _last(session, model)
    if last is None and like is not None:
        last = _last(session, like)
    if source is None:
        estimate = compile_estimate(environment, request.target, last, None)
    else:
        estimate = packaging_estimate(environment, request.target, last, source)
    machine = MACHINES[route]
    return BuildPreview(
        model=model,
        engine_key=request.engine_key,
        why=request.reason,
        route=route,
        machine=f"{machine} {instance.name}" if route == "training-job" else machine,
        minutes=estimate.minutes,
        usd=estimate.usd,
        origin=estimate.origin,
        plan_from=None if source is None else source.engine_key,
    )


def checkpoint_preview(session: Session, request: CheckpointRequest) -> BuildPreview:
    """Return where a checkpoint is built, and what the model's last one in its scheme took."""
    lock = read_generation_lock(session.paths.tree / session.environment.locks, request.model)
    entries = [entry for entry in lock.checkpoints.values() if entry.scheme == request.scheme]
    minutes = round(entries[-1].seconds / 60, 1) if entries else None
    machine = MACHINES[request.route]
    return BuildPreview(
        model=request.model,
        engine_key=request.key,
        why=request.why,
        route=request.route,
        machine=machine if request.route == QUANTIZER else f"{machine} {request.instance_type}",
        minutes=minutes,
        usd=None
        if not entries
        else checkpoint_usd(
            session.environment.region, request.route, request.instance_type, entries[-1].seconds
        ),
        origin=f"the last {request.scheme} checkpoint" if entries else "none was built before",
        scheme=request.scheme,
    )


def _last(session: Session, model: str) -> LockEntry | None:
    """Return the engine of a model that was built last."""
    lock = read_lock(session.paths.tree / session.environment.locks, model)
    entries = sorted(lock.engines.values(), key=lambda entry: entry.manifest.builder.built_at)
    return entries[-1] if entries else None
