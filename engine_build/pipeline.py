"""The steps of a build, in order. A known engine has none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from engine_build.card.files import card_files
from engine_build.context import BuildContext
from engine_build.errors import InputRefused
from engine_build.packaging.archive import backend_file
from engine_build.request import BuildRequest
from engine_build.steps.publish import known_engine, publish, publish_networks
from engine_build.store import sha256_of
from onboarding.lock import LockEntry
from onboarding.names import engine_archive_path


@dataclass(frozen=True, kw_only=True)
class MadeNetworks:
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
    """Builds and publishes an engine, or finds it. Raises BuildError."""
    store = context.kept if context.publish_to is None else context.publish_to
    known = known_engine(store, context.request.engine_key)
    if known is not None:
        context.log.line(
            f"{announced(context.request)}: already in {store.place}; nothing to build."
        )
        return Result(status="known", entry=known, place=store.place)
    entry = _finished(context)
    if entry is None:
        context.log.line(
            f"{announced(context.request)}: {planned(context)}; what is finished is reused."
        )
        entry = made(context)
    return Result(status="built", entry=published(context, entry), place=store.place)


def build_networks(context: BuildContext) -> MadeNetworks:
    """Makes, checks and publishes the networks of an order, and no engine. Raises BuildError."""
    from engine_build.check.kept_checks import checked
    from engine_build.steps.prepare import prepare

    store = context.kept if context.publish_to is None else context.publish_to
    context.log.line(
        f"networks of {context.request.model.name}: {', '.join(context.request.network_keys.values())}; no engine is built."
    )
    checked(context, prepare(context).networks)
    if context.publish_to is not None:
        with context.log.step("publish", f"{store.place}: networks, each one's record last"):
            publish_networks(store, _networks(context))
    return MadeNetworks(keys=context.request.network_keys, place=store.place)


def announced(request: BuildRequest) -> str:
    """What is built, in a few words."""
    runtime = f"{request.runtime.name} {request.runtime.version}, compute capability {request.compute_capability}"
    return f"engine {request.engine_key} of {request.model.name} ({request.model.engine.precision}, {runtime})"


def planned(context: BuildContext) -> str:
    """The steps ahead."""
    quantize = ["quantize"] if context.request.may_be_int8 else []
    names = ["fetch", "export", *quantize, "check", "compile", "verify", "benchmark", "package"]
    return ", ".join(
        [
            *names,
            *([] if context.publish_to is None else [f"publish to {context.publish_to.place}"]),
        ]
    )


def made(context: BuildContext) -> LockEntry:
    """Everything between the source and the archive in the work folder."""
    # The numeric libraries load here, so that a known engine answers at once.
    from engine_build.check.kept_checks import checked
    from engine_build.ort import version
    from engine_build.steps.compile import check_machine, compiled, tried
    from engine_build.steps.evaluate import evaluate
    from engine_build.steps.package import package
    from engine_build.steps.prepare import prepare

    check_machine(
        context.request, context.runner, forward_compatible=context.settings.forward_compatible
    )
    if context.request.is_cpu:
        _check_runtime(context.request, version())
    backend_file((context.request.root, context.code_root))
    prepared = prepare(context)
    checks = checked(context, prepared.networks)
    with context.log.step(
        "compile",
        f"{', '.join(tried(context.request, prepared.networks))} for {context.request.runtime.name}",
    ):
        candidates = compiled(context, prepared.networks)
    evaluation = evaluate(context, prepared, candidates)
    return package(context, prepared, evaluation.chosen, evaluation, checks)


def published(context: BuildContext, entry: LockEntry) -> LockEntry:
    """The entry as the store has it; without a store, the work folder's own."""
    if context.publish_to is None:
        return entry
    with context.log.step(
        "publish", f"{context.publish_to.place}: networks, archive, card, and the record last"
    ):
        archive = context.kept.path(engine_archive_path(context.request.engine_key))
        scratch = context.work.scratch("publish")
        card = partial(card_files, context.request, networks=context.kept, folder=scratch)
        return publish(
            context.publish_to, entry, archive, _networks(context), scratch, context.log, card
        )


def _finished(context: BuildContext) -> LockEntry | None:
    """The engine of an earlier run in this work folder that did not get as far as the store."""
    entry = known_engine(context.kept, context.request.engine_key)
    archive = context.kept.path(engine_archive_path(context.request.engine_key))
    return entry if entry is not None and sha256_of(archive) == entry.archive.sha256 else None


def _networks(context: BuildContext) -> list[tuple[str, Path]]:
    from engine_build.check.kept_checks import check_names
    from engine_build.onnx_graph.reference import reference_path
    from engine_build.quantization.calibration_cache import cache_path

    networks = context.networks()
    names = [name for key in context.request.network_keys.values() for name in networks.names(key)]
    checks = check_names(context.kept, context.request)
    cache = [cache_path(context.request)] if context.request.may_be_int8 else []
    paths = [
        (name, context.kept.path(name))
        for name in [*names, *cache, reference_path(context.request), *checks]
    ]
    return [(name, path) for name, path in paths if path.is_file()]


def _check_runtime(request: BuildRequest, here: str) -> None:
    if here != request.runtime.version:
        raise InputRefused(
            f"this machine has {request.runtime.name} {here}, but platform {request.platform.name} serves {request.runtime.version}; "
            "build with the environment of requirements/builder.txt."
        )
