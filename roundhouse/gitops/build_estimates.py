"""What building an engine may take: minutes and USD, by builds of before that were timed."""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.deployment import Target
from onboarding.environment_spec import EnvironmentSpec
from onboarding.lock import LockEntry, read_lock
from onboarding.plan_source import PlanSource
from onboarding.platform import PACKAGING_ROUTE, BuildRoute
from onboarding.prices import price
from onboarding.text_generation.checkpoint_lock import GenerationLock
from onboarding.text_generation.quantizer_route import QUANTIZER
from roundhouse.deploy.builds.requests import (
    BuildRequest,
    CheckpointRequest,
    EngineRequest,
    compile_route,
)
from roundhouse.figures import usd
from roundhouse.session import Session

CODEBUILD_HOSTS = {"cpu": "linux.large", "gpu": "linux-gpu.small", QUANTIZER: "linux.xlarge"}
"""The hosts of our CodeBuild projects, as prices.yaml names them; a fleet is paid by the hour."""
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
class BuildEstimate:
    """What a build may take; `origin` says where the numbers come from. None: not known."""

    minutes: float | None
    usd: float | None
    origin: str


def job_usd(region: str, host: str | None, instance_type: str, seconds: float) -> float | None:
    """Return what a build of so many seconds costs; None where no price is known.

    `host`: of CodeBuild, as prices.yaml names it; None: a training job on `instance_type`.
    """
    if host is not None:
        a_minute = price(region, "codebuild", host)
    else:
        an_hour = price(region, "training", instance_type)
        a_minute = None if an_hour is None else an_hour / 60
    return None if a_minute is None else round(seconds / 60 * a_minute, 2)


def build_estimate(
    environment: EnvironmentSpec,
    target: Target,
    last: LockEntry | None,
    source: PlanSource | None = None,
) -> BuildEstimate:
    """Return what building an engine takes, by `last`, an earlier one of its model.

    Packaging the plan of `source` anew takes what it took the last time.
    """
    if source is None:
        seconds = None if last is None else last.manifest.builder.seconds
        if seconds is None:
            unknown = "no build of this model was timed"
            return BuildEstimate(minutes=None, usd=None, origin=unknown)
        route, origin = compile_route(environment, target), "the last build of this model"
        return _estimate(environment, route, target, seconds, origin)
    entries = [entry for entry in (last, source.entry) if entry is not None]
    records = [entry.repackaged.builder for entry in entries if entry.repackaged is not None]
    packed = [item.seconds for item in records if item.seconds is not None]
    if not packed:
        return BuildEstimate(minutes=None, usd=None, origin="no packaging of this plan was timed")
    return _estimate(environment, PACKAGING_ROUTE, target, packed[0], "the last time")


def _estimate(
    environment: EnvironmentSpec,
    route: BuildRoute,
    target: Target,
    seconds: float,
    origin: str,
) -> BuildEstimate:
    minutes, usd = round(seconds / 60, 1), None
    if route != "fleet":
        host, instance_type = CODEBUILD_HOSTS.get(route), target.instance_type.name
        usd = job_usd(environment.region, host, instance_type, minutes * 60)
    return BuildEstimate(minutes=minutes, usd=usd, origin=origin)


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
    session: Session, request: BuildRequest, *, like: str | None = None
) -> BuildPreview:
    """Return where something is built, and what its model's last build took.

    `like`: another model whose last build of an engine counts where this one has none.
    """
    plan_from = scheme = None
    if isinstance(request, EngineRequest):
        source, why = request.plan_from, request.reason
        last = _last(session, request.model) or (None if like is None else _last(session, like))
        estimate = build_estimate(session.environment, request.target, last, source)
        plan_from = None if source is None else source.engine_key
    else:
        assert isinstance(request, CheckpointRequest)
        scheme, why = request.scheme, request.why
        estimate = _checkpoint_estimate(session, request)
    machine = MACHINES[request.route]
    return BuildPreview(
        model=request.model,
        engine_key=request.key,
        why=why,
        route=request.route,
        machine=f"{machine} {request.instance_type}" if machine.endswith(" on") else machine,
        minutes=estimate.minutes,
        usd=estimate.usd,
        origin=estimate.origin,
        plan_from=plan_from,
        scheme=scheme,
    )


def _checkpoint_estimate(session: Session, request: CheckpointRequest) -> BuildEstimate:
    """Return what a checkpoint takes, by the model's last one in its scheme."""
    locks = session.paths.tree / session.environment.locks
    entries = read_lock(locks, request.model, GenerationLock).checkpoints.values()
    seconds = [entry.seconds for entry in entries if entry.scheme == request.scheme]
    if not seconds:
        return BuildEstimate(minutes=None, usd=None, origin="none was built before")
    host, region = CODEBUILD_HOSTS.get(request.route), session.environment.region
    return BuildEstimate(
        minutes=round(seconds[-1] / 60, 1),
        usd=job_usd(region, host, request.instance_type, seconds[-1]),
        origin=f"the last {request.scheme} checkpoint",
    )


def _last(session: Session, model: str) -> LockEntry | None:
    """Return the engine of a model that was built last."""
    lock = read_lock(session.paths.tree / session.environment.locks, model)
    entries = sorted(lock.engines.values(), key=lambda entry: entry.manifest.builder.built_at)
    return entries[-1] if entries else None
