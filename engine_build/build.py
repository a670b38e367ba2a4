"""One build: a published engine is known, and only a missing one is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine_build.context import BuildContext
from engine_build.errors import PublishFailed
from engine_build.packaging.archive import known_engine
from engine_build.request import BuildRequest
from engine_build.store import Store, sha256_of
from onboarding.lock import LockEntry
from onboarding.names import ENGINES_PREFIX, engine_archive_path, engine_record_path


@dataclass(frozen=True, kw_only=True)
class BuiltNetworks:
    """Networks that are there now, from which any GPU's builder goes on."""

    keys: dict[str, str]
    place: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """An engine that is there now, or as a candidate once it is signed."""

    status: Literal["known", "built", "candidate"]
    entry: LockEntry
    place: str


def build(context: BuildContext) -> Result:
    """Find an engine, or build and publish it. Raises BuildError."""
    store, request, log = context.destination, context.request, context.log
    title = (
        f"engine {request.engine_key} of {request.model.name} ("
        f"{_kind(request)}, "
        f"{request.runtime.name} {request.runtime.version}, compute capability "
        f"{request.compute_capability})"
    )
    known = known_engine(store, request.engine_key)
    if known is not None:
        log.line(f"{title}: already in {store.place}; nothing to build.")
        return Result(status="known", entry=known, place=store.place)
    if context.candidate is not None:
        refuse_stale_record(store, request.engine_key)
    # The numeric libraries load here, so that a known engine answers at once.
    from engine_build.packaging.reused_plan import find_plan
    from engine_build.pipeline import STEPS_OF_PACKAGING, publish_finished, run_steps, step_names
    from engine_build.steps.compile import refuse_unfit_machine

    # The engine of an earlier run in this work folder that did not get as far as the store.
    finished = known_engine(context.work_store, request.engine_key)
    archive = context.work_store.path(engine_archive_path(request.engine_key))
    if finished is not None and sha256_of(archive) == finished.archive.sha256:
        entry = publish_finished(context, finished)
    elif (reused := find_plan(context)) is not None:
        names = ", ".join(step_names(context, STEPS_OF_PACKAGING))
        log.line(f"{title}: {names}; plan {request.plan_key} is packaged anew.")
        entry = run_steps(context, STEPS_OF_PACKAGING, reused).entry
    else:
        log.line(f"{title}: {', '.join(step_names(context))}; what is finished is reused.")
        if request.runtime.name != "triton":  # nothing is compiled, or run
            refuse_unfit_machine(context)
        entry = run_steps(context).entry
    status: Literal["built", "candidate"] = "built" if context.candidate is None else "candidate"
    return Result(status=status, entry=entry, place=store.place)


def _kind(request: BuildRequest) -> str:
    """Return the precision that is asked for, or what has none."""
    if request.plan_key is not None:
        return request.model.engine.precision
    return "ensemble" if request.steps else "Triton repository"


def refuse_stale_record(store: Store, engine_key: str) -> None:
    """Refuse, before anything is built, an engine that the signer could not publish.

    It replaces no record, and this one's archive is gone or another. Raises PublishFailed.
    """
    if store.size(engine_record_path(engine_key)) is not None:
        folder = f"{store.place}/{ENGINES_PREFIX}/{engine_key}/"
        raise PublishFailed(
            f"{folder} holds a record without its archive, and nothing there is replaced; delete "
            "all of it, then build again."
        )


def build_networks(context: BuildContext) -> BuiltNetworks:
    """Make, check and publish the networks of a request, and no engine. Raises BuildError."""
    from engine_build.pipeline import STEPS_OF_NETWORKS, run_steps, step_names

    request = context.request
    steps = ", ".join(step_names(context, STEPS_OF_NETWORKS))
    context.log.line(
        f"networks of {request.model.name} ({', '.join(request.network_keys.values())}), no "
        f"engine: {steps}; what is finished is reused."
    )
    run_steps(context, STEPS_OF_NETWORKS)
    return BuiltNetworks(keys=request.network_keys, place=context.destination.place)
