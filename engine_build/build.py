"""One build: a published engine is found, and only a missing one is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine_build.context import BuildContext
from engine_build.packaging.archive import known_engine
from engine_build.request import BuildRequest
from engine_build.store import sha256_of
from onboarding.lock import LockEntry
from onboarding.names import engine_archive_path


@dataclass(frozen=True, kw_only=True)
class BuiltNetworks:
    """Networks that are there now, from which any GPU's builder goes on."""

    keys: dict[str, str]
    place: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """An engine that is there now."""

    status: Literal["known", "built"]
    entry: LockEntry
    place: str


def build(context: BuildContext) -> Result:
    """Find an engine, or build and publish it. Raises BuildError."""
    store, request = context.destination, context.request
    known = known_engine(store, request.engine_key)
    if known is not None:
        context.log.line(f"{_title(request)}: already in {store.place}; nothing to build.")
        return Result(status="known", entry=known, place=store.place)
    # The numeric libraries load here, so that a known engine answers at once.
    from engine_build.pipeline import publish_finished, run_steps, step_names
    from engine_build.steps.compile import refuse_unfit_machine

    finished = _finished(context)
    if finished is None:
        context.log.line(f"{_title(request)}: {step_names(context)}; what is finished is reused.")
        refuse_unfit_machine(context)
        entry = run_steps(context).entry
    else:
        entry = publish_finished(context, finished)
    return Result(status="built", entry=entry, place=store.place)


def build_networks(context: BuildContext) -> BuiltNetworks:
    """Make, check and publish the networks of a request, and no engine. Raises BuildError."""
    from engine_build.pipeline import STEPS_OF_NETWORKS, run_steps, step_names

    request = context.request
    context.log.line(
        f"networks of {request.model.name} ({', '.join(request.network_keys.values())}), no "
        f"engine: {step_names(context, STEPS_OF_NETWORKS)}; what is finished is reused."
    )
    run_steps(context, STEPS_OF_NETWORKS)
    return BuiltNetworks(keys=request.network_keys, place=context.destination.place)


def _title(request: BuildRequest) -> str:
    runtime = f"{request.runtime.name} {request.runtime.version}"
    return (
        f"engine {request.engine_key} of {request.model.name} ({request.model.engine.precision}, "
        f"{runtime}, compute capability {request.compute_capability})"
    )


def _finished(context: BuildContext) -> LockEntry | None:
    """The engine of an earlier run in this work folder that did not get as far as the store."""
    entry = known_engine(context.work_store, context.request.engine_key)
    archive = context.work_store.path(engine_archive_path(context.request.engine_key))
    return entry if entry is not None and sha256_of(archive) == entry.archive.sha256 else None
