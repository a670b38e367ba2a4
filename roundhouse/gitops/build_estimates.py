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
from onboarding.text_generation.quantizer_route import QUANTIZER, QuantizerRoute
from roundhouse import money
from roundhouse.deploy.builds.requests import CheckpointRequest, EngineRequest, compile_route
from roundhouse.gitops.plan_document import BuildEstimate
from roundhouse.session import Session

CODEBUILD_HOSTS = {"cpu": "linux.large", "gpu": "linux-gpu.small"}
"""The hosts of our CodeBuild projects, as prices.yaml names them; a fleet is paid by the hour."""
QUANTIZER_HOST = "linux.xlarge"
"""Of the CodeBuild project that makes checkpoints, as prices.yaml names it."""
COLUMNS = ("model", "engine", "what", "why", "where", "minutes", "USD")
MACHINES = {
    "cpu": "CodeBuild, Linux",
    "gpu": "CodeBuild, Linux GPU (A10G)",
    "fleet": "the environment's CodeBuild fleet",
    "training-job": "SageMaker training job on",
    "quantizer": "CodeBuild, Linux",
    "quantizer-job": "SageMaker training job on",
}


def checkpoint_usd(
    region: str, route: QuantizerRoute, instance_type: str, seconds: float
) -> float | None:
    """Return what a checkpoint's build of so many seconds costs; None where no price is known.

    `instance_type`: of the training job, where it is built by one.
    """
    if route == QUANTIZER:
        a_minute = price(region, "codebuild", QUANTIZER_HOST)
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

    Packaging the plan of `source` anew takes what it took the last time, else at most what the
    build took that compiled it: it packaged the plan too.
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
    if packed:
        return _estimate(environment, PACKAGING_ROUTE, target, packed[0], "the last time")
    whole = [item.manifest.builder.seconds for item in reversed(entries)]
    known = [item for item in whole if item is not None]
    if not known:
        return BuildEstimate(minutes=None, usd=None, origin="no build of this plan was timed")
    origin = "what the build took that compiled it"
    bound = _estimate(environment, PACKAGING_ROUTE, target, known[0], origin)
    return bound.model_copy(update={"is_bound": True})


def _estimate(
    environment: EnvironmentSpec,
    route: BuildRoute,
    target: Target,
    seconds: float,
    origin: str,
) -> BuildEstimate:
    minutes = round(seconds / 60, 1)
    if route in CODEBUILD_HOSTS:
        a_minute = price(environment.region, "codebuild", CODEBUILD_HOSTS[route])
    else:
        an_hour = price(environment.region, "training", target.instance_type.name)
        a_minute = None if an_hour is None or route == "fleet" else an_hour / 60
    usd = None if a_minute is None else round(minutes * a_minute, 2)
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
            money.usd(self.usd),
        )


def build_preview(
    session: Session, request: EngineRequest, *, like: str | None = None
) -> BuildPreview:
    """Return where an engine is built, and what its model's last build took.

    `like`: another model whose last build counts where this one has none.
    """
    environment, instance, route = session.environment, request.target.instance_type, request.route
    model, source = request.target.model.name, request.plan_from
    last = _last(session, model) or (None if like is None else _last(session, like))
    estimate = build_estimate(environment, request.target, last, source)
    machine = MACHINES[route]
    return BuildPreview(
        model=model,
        engine_key=request.key,
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
    lock = read_lock(session.paths.tree / session.environment.locks, request.model, GenerationLock)
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
