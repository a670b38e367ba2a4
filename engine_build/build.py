"""One engine: a published one is known, and only a missing one is built."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from engine_build.errors import PublishFailed
from engine_build.packaging.archive import known_engine
from engine_build.request import BuildContext, BuildRequest
from engine_build.store import Store, sha256_of
from engine_build.workload import VERBS, Answer, Status, Tools
from onboarding.lock import LockEntry
from onboarding.names import ENGINES_PREFIX, engine_archive_path, engine_record_path
from onboarding.plan_source import PlanSource


@dataclass(frozen=True, kw_only=True)
class Result:
    """An engine that is there now, or as a candidate once it is signed."""

    status: Status
    entry: LockEntry
    place: str


@dataclass(frozen=True, kw_only=True)
class EngineBuild:
    """The build of one engine, or of its networks alone."""

    request: BuildRequest
    plan_source: PlanSource | None
    networks_only: bool

    @property
    def region(self) -> str:
        """The AWS region of the environment."""
        return self.request.region

    def build(self, tools: Tools) -> Answer:
        """Build what is missing. Raises BuildError."""
        context = BuildContext(
            **vars(tools),
            request=self.request,
            plan_source=self.plan_source,
            code_root=Path(__file__).resolve().parents[1],
            now=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )
        if not self.networks_only:
            result = build(context)
            manifest, archive = result.entry.manifest, result.entry.archive
            return Answer(
                {
                    "status": result.status,
                    "engine_key": manifest.engine_key,
                    "place": result.place,
                    "archive": archive.model_dump(mode="json"),
                    "precision": manifest.precision,
                    "decision": manifest.decision,
                },
                f"Engine {manifest.engine_key} of {manifest.model} {VERBS[result.status]}: "
                f"{result.place}/{archive.path} ({manifest.precision}).",
            )
        build_networks(context)
        keys, place = self.request.network_keys, context.destination.place
        names = ", ".join(f"{name} {key}" for name, key in keys.items())
        fields = {"status": "networks", "network_keys": keys, "place": place}
        return Answer(fields, f"Networks are in {place}: {names}.")


def build(context: BuildContext) -> Result:
    """Find an engine, or build and publish it. Raises BuildError."""
    store, request, log = context.destination, context.request, context.log
    kind = "ensemble" if request.steps else "Triton repository"
    if request.plan_key is not None:
        kind = request.model.engine.precision
    title = (
        f"engine {request.engine_key} of {request.model.name} ({kind}, "
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
    from engine_build.pipeline import STEPS_OF_PACKAGING, publish_finished, run_steps, steps_of
    from engine_build.steps.compile import refuse_unfit_machine

    # The engine of an earlier run in this work folder that did not get as far as the store.
    finished = known_engine(context.work.store, request.engine_key)
    archive = context.work.store.path(engine_archive_path(request.engine_key))
    if finished is not None and sha256_of(archive) == finished.archive.sha256:
        entry = publish_finished(context, finished)
    elif (reused := find_plan(context)) is not None:
        steps = steps_of(context, STEPS_OF_PACKAGING)
        names = ", ".join(step.name for step in steps)
        log.line(f"{title}: {names}; plan {request.plan_key} is packaged anew.")
        entry = run_steps(context, steps, reused).entry
    else:
        steps = steps_of(context)
        names = ", ".join(step.name for step in steps)
        log.line(f"{title}: {names}; what is finished is reused.")
        if request.runtime.name != "triton":  # nothing is compiled, or run
            refuse_unfit_machine(context)
        entry = run_steps(context, steps).entry
    return Result(status=context.new_status, entry=entry, place=store.place)


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


def build_networks(context: BuildContext) -> None:
    """Make, check and publish the networks of a request, and no engine. Raises BuildError."""
    from engine_build.pipeline import STEPS_OF_NETWORKS, run_steps, steps_of

    request = context.request
    steps = steps_of(context, STEPS_OF_NETWORKS)
    context.log.line(
        f"networks of {request.model.name} ({', '.join(request.network_keys.values())}), no "
        f"engine: {', '.join(step.name for step in steps)}; what is finished is reused."
    )
    run_steps(context, steps)
