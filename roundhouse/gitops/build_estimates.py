"""What building an engine may take: minutes and USD, by builds of before that were timed."""

from __future__ import annotations

from onboarding.deployment import Target
from onboarding.environment_spec import EnvironmentSpec
from onboarding.lock import LockEntry
from onboarding.plan_source import PlanSource
from onboarding.platform import PACKAGING_ROUTE, BuildRoute
from onboarding.prices import price
from onboarding.text_generation.quantizer_route import QUANTIZER, QuantizerRoute
from roundhouse.deploy.builds.engine_requests import compile_route
from roundhouse.gitops.plan_document import BuildEstimate

CODEBUILD_HOSTS = {"cpu": "linux.large", "gpu": "linux-gpu.small"}
"""The hosts of our CodeBuild projects, as prices.yaml names them; a fleet is paid by the hour."""


QUANTIZER_HOST = "linux.xlarge"
"""Of the CodeBuild project that makes checkpoints, as prices.yaml names it."""


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


def compile_estimate(
    environment: EnvironmentSpec,
    target: Target,
    last: LockEntry | None,
    source: PlanSource | None,
) -> BuildEstimate:
    """Return what compiling a plan takes.

    `source`, whose plan it is, tells by its own build; else `last`, an earlier engine of the model.
    """
    entry, origin = last, "the last build of this model"
    unknown = "no build of this model was timed"
    if source is not None and source.entry is not None:
        entry, origin = source.entry, "the build that compiled it"
        unknown = f"{origin} was not timed"
    seconds = None if entry is None else entry.manifest.builder.seconds
    if seconds is None:
        return BuildEstimate(minutes=None, usd=None, origin=unknown)
    return _estimate(environment, compile_route(environment, target), target, seconds, origin)


def packaging_estimate(
    environment: EnvironmentSpec,
    target: Target,
    last: LockEntry | None,
    source: PlanSource,
) -> BuildEstimate:
    """Return what packaging a plan anew takes, by the last time that one was.

    Else at most what the build took that compiled it: it packaged the plan too.
    """
    entries = [entry for entry in (last, source.entry) if entry is not None]
    records = [entry.repackaged.builder for entry in entries if entry.repackaged is not None]
    seconds = [item.seconds for item in records if item.seconds is not None]
    if seconds:
        return _estimate(environment, PACKAGING_ROUTE, target, seconds[0], "the last time")
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
