"""The steps of a build, in order. A known engine has none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from engine_build.card.files import card_files
from engine_build.errors import InputRefused
from engine_build.order import Order
from engine_build.packaging.archive import backend_file
from engine_build.packaging.publication import known_engine, publish, publish_networks
from engine_build.shop import Shop
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


def build(shop: Shop) -> Result:
    """Builds and publishes an engine, or finds it. Raises BuildError."""
    store = shop.kept if shop.publish_to is None else shop.publish_to
    known = known_engine(store, shop.order.engine_key)
    if known is not None:
        shop.log.line(f"{announced(shop.order)}: already in {store.place}; nothing to build.")
        return Result(status="known", entry=known, place=store.place)
    entry = _finished(shop)
    if entry is None:
        shop.log.line(f"{announced(shop.order)}: {planned(shop)}; what is finished is reused.")
        entry = made(shop)
    return Result(status="built", entry=published(shop, entry), place=store.place)


def build_networks(shop: Shop) -> MadeNetworks:
    """Makes, checks and publishes the networks of an order, and no engine. Raises BuildError."""
    from engine_build.check.kept_checks import checked
    from engine_build.networks.preparation import prepare

    store = shop.kept if shop.publish_to is None else shop.publish_to
    shop.log.line(
        f"networks of {shop.order.model.name}: {', '.join(shop.order.network_keys.values())}; no engine is built."
    )
    checked(shop, prepare(shop).networks)
    if shop.publish_to is not None:
        with shop.log.step("publish", f"{store.place}: networks, each one's record last"):
            publish_networks(store, _networks(shop))
    return MadeNetworks(keys=shop.order.network_keys, place=store.place)


def announced(order: Order) -> str:
    """What is built, in a few words."""
    runtime = f"{order.runtime.name} {order.runtime.version}, compute capability {order.compute_capability}"
    return f"engine {order.engine_key} of {order.model.name} ({order.model.engine.precision}, {runtime})"


def planned(shop: Shop) -> str:
    """The steps ahead."""
    quantize = ["quantize"] if shop.order.may_be_int8 else []
    names = ["fetch", "export", *quantize, "check", "compile", "verify", "benchmark", "package"]
    return ", ".join(
        [*names, *([] if shop.publish_to is None else [f"publish to {shop.publish_to.place}"])]
    )


def made(shop: Shop) -> LockEntry:
    """Everything between the source and the archive in the work folder."""
    # The numeric libraries load here, so that a known engine answers at once.
    from engine_build.check.kept_checks import checked
    from engine_build.engine import check_machine, compiled, tried
    from engine_build.networks.preparation import prepare
    from engine_build.ort import version
    from engine_build.packaging.package import package
    from engine_build.steps.evaluate import judge

    check_machine(shop.order, shop.runner, forward_compatible=shop.settings.forward_compatible)
    if shop.order.is_cpu:
        _check_runtime(shop.order, version())
    backend_file((shop.order.root, shop.code_root))
    prepared = prepare(shop)
    checks = checked(shop, prepared.networks)
    with shop.log.step(
        "compile",
        f"{', '.join(tried(shop.order, prepared.networks))} for {shop.order.runtime.name}",
    ):
        candidates = compiled(shop, prepared.networks)
    judged = judge(shop, prepared, candidates)
    return package(shop, prepared, judged.chosen, judged, checks)


def published(shop: Shop, entry: LockEntry) -> LockEntry:
    """The entry as the store has it; without a store, the work folder's own."""
    if shop.publish_to is None:
        return entry
    with shop.log.step(
        "publish", f"{shop.publish_to.place}: networks, archive, card, and the record last"
    ):
        archive = shop.kept.path(engine_archive_path(shop.order.engine_key))
        scratch = shop.work.scratch("publish")
        card = partial(card_files, shop.order, networks=shop.kept, folder=scratch)
        return publish(shop.publish_to, entry, archive, _networks(shop), scratch, shop.log, card)


def _finished(shop: Shop) -> LockEntry | None:
    """The engine of an earlier run in this work folder that did not get as far as the store."""
    entry = known_engine(shop.kept, shop.order.engine_key)
    archive = shop.kept.path(engine_archive_path(shop.order.engine_key))
    return entry if entry is not None and sha256_of(archive) == entry.archive.sha256 else None


def _networks(shop: Shop) -> list[tuple[str, Path]]:
    from engine_build.check.kept_checks import check_names
    from engine_build.networks.reference import reference_path
    from engine_build.quantization.calibration_cache import cache_path

    networks = shop.networks()
    names = [name for key in shop.order.network_keys.values() for name in networks.names(key)]
    checks = check_names(shop.kept, shop.order)
    cache = [cache_path(shop.order)] if shop.order.may_be_int8 else []
    paths = [
        (name, shop.kept.path(name))
        for name in [*names, *cache, reference_path(shop.order), *checks]
    ]
    return [(name, path) for name, path in paths if path.is_file()]


def _check_runtime(order: Order, here: str) -> None:
    if here != order.runtime.version:
        raise InputRefused(
            f"this machine has {order.runtime.name} {here}, but platform {order.platform.name} serves {order.runtime.version}; "
            "build with the environment of requirements/builder.txt."
        )
