"""The publish step: networks, then the archive, then its card, then the record that makes the
engine visible.

An archive is never replaced while it is whole, and the record follows from the archive alone. So
two builds of one key that
publish at once agree on the record, and a publish that was interrupted is finished by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from engine_build.log import Log
from engine_build.packaging.archive import entry_bytes, entry_of
from engine_build.store import Store
from onboarding.lock import LockEntry
from onboarding.names import engine_archive_path, engine_record_path

File = tuple[str, Path]
"""The name of an object, and the file that becomes it."""


def known_engine(store: Store, engine_key: str) -> LockEntry | None:
    """A published engine: its record is there and readable, and its archive has the size that the
    record says.
    """
    data = store.read(engine_record_path(engine_key))
    if data is None:
        return None
    try:
        entry = LockEntry.model_validate_json(data)
    except ValueError:
        return None
    same_key = entry.manifest.engine_key == engine_key
    return (
        entry
        if same_key and store.size(engine_archive_path(engine_key)) == entry.archive.size_bytes
        else None
    )


def publish(
    store: Store,
    entry: LockEntry,
    archive: Path,
    networks: Sequence[File],
    scratch: Path,
    log: Log,
    card: Callable[[LockEntry], Sequence[File]] = lambda entry: (),
) -> LockEntry:
    """Publishes what is missing and returns the entry of the archive that is there now. Raises
    PublishFailed.

    `card` makes the files that are published beside that archive, whoever built it.
    """
    publish_networks(store, networks)
    published = _published_archive(store, entry, archive, scratch, log)
    for name, path in card(published):
        store.upload(path, name)
    record = scratch / "record"
    record.write_bytes(entry_bytes(published))
    store.upload(record, engine_record_path(entry.manifest.engine_key))
    return published


def publish_networks(store: Store, networks: Sequence[File]) -> None:
    """Uploads the files of networks that are missing, in order: a network's record is its last.

    Raises PublishFailed.
    """
    for name, path in networks:
        if store.size(name) != path.stat().st_size:
            store.upload(path, name)


def _published_archive(
    store: Store, entry: LockEntry, archive: Path, scratch: Path, log: Log
) -> LockEntry:
    name = engine_archive_path(entry.manifest.engine_key)
    if store.upload(archive, name, only_if_absent=True):
        return entry
    present = scratch / "present.tar.gz"
    store.download(name, present)
    try:
        found = entry_of(present, entry.manifest.engine_key)
        log.line(
            f"  {name} is in {store.place} already, from another build of the same key; it is kept"
        )
        return found
    except ValueError as error:
        log.line(f"  {name} in {store.place} is replaced: {error}")
        store.upload(archive, name)
        return entry
