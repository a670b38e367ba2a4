"""What building an engine may take: minutes and USD, by builds of before that were timed."""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.lock import LockEntry, read_lock
from onboarding.platform import BuildRoute
from onboarding.prices import price
from onboarding.text_generation.checkpoint_key import QUANTIZER, QuantizerRoute
from onboarding.text_generation.checkpoint_lock import GenerationLock
from roundhouse.deploy.builds.requests import BuildRequest, CheckpointRequest, EngineRequest
from roundhouse.session import Session
from roundhouse.text import usd

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
class BuildPreview:
    """One engine or checkpoint to build; `minutes` and `usd` None: not known.

    `action`: compile or repackage a plan, or the scheme of a checkpoint. `plan_from`: the engine
    whose plan is packaged.
    """

    model: str
    key: str
    action: str
    why: str
    route: str
    machine: str
    minutes: float | None
    usd: float | None
    plan_from: str | None = None

    def cells(self) -> tuple[str, ...]:
        """Return the row of a table."""
        minutes = "unknown: none was timed" if self.minutes is None else f"{self.minutes:g}"
        own = (self.model, self.key, self.action, self.why, self.machine)
        return (*own, minutes, usd(self.usd))


def build_preview(
    session: Session, request: BuildRequest, *, like: str | None = None
) -> BuildPreview:
    """Return where something is built, and what its model's last build took.

    `like`: another model whose last build of an engine counts where this one has none.
    """
    plan_from, why = None, request.why
    if isinstance(request, CheckpointRequest):
        action = f"checkpoint in {request.scheme}"
        seconds = _checkpoint_seconds(session, request)
    else:
        assert isinstance(request, EngineRequest)
        source, why = request.plan_from, request.reason
        action = "compile" if source is None else "repackage"
        plan_from = None if source is None else source.engine_key
        seconds = _engine_seconds(session, request, like)
    machine, minutes = MACHINES[request.route], None if seconds is None else round(seconds / 60, 1)
    rate = minute_usd(session.environment.region, request.route, request.instance_type)
    return BuildPreview(
        model=request.model,
        key=request.key,
        action=action,
        why=why,
        route=request.route,
        machine=f"{machine} {request.instance_type}" if machine.endswith(" on") else machine,
        minutes=minutes,
        usd=None if rate is None or minutes is None else round(minutes * rate, 2),
        plan_from=plan_from,
    )


def _engine_seconds(session: Session, request: EngineRequest, like: str | None) -> float | None:
    """Return what the model's last build took, or where a plan is packaged anew its packaging."""
    last = _last(session, request.model) or (None if like is None else _last(session, like))
    if request.plan_from is None:
        return None if last is None else last.manifest.builder.seconds
    entries = [entry for entry in (last, request.plan_from.entry) if entry is not None]
    records = [entry.repackaged.builder for entry in entries if entry.repackaged is not None]
    return next((item.seconds for item in records if item.seconds is not None), None)


def _checkpoint_seconds(session: Session, request: CheckpointRequest) -> float | None:
    """Return what the model's last checkpoint in this scheme took."""
    locks = session.paths.tree / session.environment.locks
    entries = read_lock(locks, request.model, GenerationLock).checkpoints.values()
    seconds = [entry.seconds for entry in entries if entry.scheme == request.scheme]
    return seconds[-1] if seconds else None


def minute_usd(region: str, route: BuildRoute | QuantizerRoute, instance_type: str) -> float | None:
    """Return USD a minute of a build by a route; None where it is not known, as of a fleet."""
    host = CODEBUILD_HOSTS.get(route)
    if host is not None:
        return price(region, "codebuild", host)
    an_hour = None if route == "fleet" else price(region, "training", instance_type)
    return None if an_hour is None else an_hour / 60


def _last(session: Session, model: str) -> LockEntry | None:
    """Return the engine of a model that was built last."""
    lock = read_lock(session.paths.tree / session.environment.locks, model)
    entries = sorted(lock.engines.values(), key=lambda entry: entry.manifest.builder.built_at)
    return entries[-1] if entries else None
