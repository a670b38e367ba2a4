"""The publish step: networks, archive, and the record that makes an engine visible.

A build in an environment publishes a candidate: an archive, of which the environment's signer makes
the engine (`engine_build/signer.py`). An archive is never replaced while it is whole, and the
record follows from the archive alone. So two builds of one key that publish at once agree on the
record, and a publish that was interrupted is finished by the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine_build.log import Log
from engine_build.onnx_graph.network_store import Networks
from engine_build.packaging.archive import entry_of, publish_record
from engine_build.request import BuildContext
from engine_build.steps.check import PREFIX as CHECKS
from engine_build.steps.half_precision import PREFIX as HALVES
from engine_build.steps.reference import reference_path
from engine_build.steps.step import BuildState
from engine_build.store import Store
from onboarding.lock import LockEntry
from onboarding.names import ARCHIVE_NAME, candidate_path, engine_archive_path, network_path

File = tuple[str, Path]
"""The name of an object, and the file that becomes it."""


def publish(
    store: Store,
    entry: LockEntry,
    archive: Path,
    networks: Sequence[File],
    scratch: Path,
    log: Log,
) -> LockEntry:
    """Publish what is missing and return the entry of the archive that is there now.

    Raises PublishFailed.
    """
    publish_networks(store, networks)
    name = engine_archive_path(entry.manifest.engine_key)
    if not store.upload(archive, name, only_if_absent=True):
        present = scratch / "present.tar.gz"
        store.download(name, present)
        try:
            entry = entry_of(present, entry.manifest.engine_key, entry.plan_key)
            log.line(
                f"  {name} is in {store.place} already, from another build of the same key; it is "
                "kept"
            )
        except ValueError as error:
            log.line(f"  {name} in {store.place} is replaced: {error}")
            store.upload(archive, name)
    publish_record(store, entry, scratch)
    return entry


def publish_candidate(
    store: Store,
    entry: LockEntry,
    archive: Path,
    networks: Sequence[File],
    candidate: str,
) -> None:
    """Publish an engine for the signer, the archive last. Raises PublishFailed."""
    publish_networks(store, networks)
    name = candidate_path(entry.manifest.engine_key, candidate, ARCHIVE_NAME)
    store.upload(archive, name, only_if_absent=True)


def publish_networks(store: Store, networks: Sequence[File]) -> None:
    """Upload the files of networks that are missing, in order: a network's record is its last.

    What is there is kept: names of files hold their digests, and of two records the first counts.
    Raises PublishFailed.
    """
    for name, path in networks:
        store.upload(path, name, only_if_absent=True)


def network_files(context: BuildContext, networks: Networks) -> list[File]:
    """Return what the work folder has of the networks, each one's record after its files."""
    request = context.request
    names = [name for key in request.network_keys.values() for name in networks.names(key)]
    cache = [request.cache_path] if request.may_be_int8 else []
    records = [
        network_path(key, path.name)
        for prefix in (CHECKS, HALVES)
        for key in request.network_keys.values()
        for path in context.work.store.path(network_path(key, "")).glob(f"{prefix}*")
    ]
    others = [*cache, reference_path(request), *records]
    paths = [(name, context.work.store.path(name)) for name in [*names, *others]]
    return [(name, path) for name, path in paths if path.is_file()]


def run(context: BuildContext, state: BuildState) -> None:
    """Publish the engine; the entry becomes the one that the store has. Raises PublishFailed."""
    store, request = context.destination, context.request
    last = "the record last" if context.candidate is None else "for the signer"
    intent = f"{store.place}: networks, archive, {last}"
    with context.log.step("publish", intent):
        archive = context.work.store.path(engine_archive_path(request.engine_key))
        scratch = context.work.scratch("publish")
        networks = [] if request.plan_key is None else network_files(context, state.network_store)
        if context.candidate is not None:
            publish_candidate(store, state.entry, archive, networks, context.candidate)
            return
        state.entry = publish(store, state.entry, archive, networks, scratch, context.log)


def run_networks(context: BuildContext, state: BuildState) -> None:
    """Publish the networks alone. Raises PublishFailed."""
    place = context.destination.place
    with context.log.step("publish", f"{place}: networks, each one's record last"):
        publish_networks(context.destination, network_files(context, state.network_store))
