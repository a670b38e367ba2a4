"""Copies what builds made between the buckets of two environments, by digest and write-once."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import Any

from onboarding.lock import BuiltEntry, LockEntry
from onboarding.names import (
    ENGINES_PREFIX,
    NETWORKS_PREFIX,
    checkpoint_record_path,
    engine_record_path,
)
from onboarding.text_generation.checkpoint_lock import CheckpointEntry
from roundhouse.aws.clients import Client, copy_once, list_objects, object_bytes, object_head
from roundhouse.errors import DeployFailedError

AT_ONCE = 8
"""S3 copies a file of 5 GB, the largest there is, in one request that takes minutes."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """One environment's bucket, with clients of its region; `copies` copies into it."""

    bucket: str
    s3: Client
    copies: Client


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a copy did: objects that were copied, and those that were there."""

    copied: int
    present: int


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """One object to copy; `sha256` in hex, None: no lock says it."""

    key: str
    size_bytes: int
    sha256: str | None = None


def copy_entries(
    source: Store,
    destination: Store,
    entries: Sequence[BuiltEntry],
    commands: Mapping[str, str],
    on_object: Callable[[str], None] = lambda name: None,
) -> Copied:
    """Copy what lock entries name: archive, record and networks of engines, files of checkpoints.

    Records are written last. No byte is read here: S3 knows the sha256 of each file and keeps it in
    the copy. What is there with the same content is left: a copy that was broken off goes on.
    `commands` bring the files of each key into the source. Raises DeployFailedError for a file or
    record that is missing, or is another than the lock says, on either side.
    """
    done: dict[str, bool] = {}
    for entry in entries:
        command = commands[entry.key]
        files, record, copy_record = stored_files(entry, source, destination, command)
        copy = partial(_copy_file, source, destination, entry, command)
        # A network of two engines is copied once.
        left = [file for file in files if file.key not in done]
        others = [file for file in left if file.key != record]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for file, is_new in zip(others, pool.map(copy, others), strict=True):
                on_object(file.key)
                done[file.key] = is_new
        on_object(record)
        if copy_record is not None:
            done[record] = copy_record()
        else:
            done |= {file.key: copy(file) for file in left if file.key == record}
    copied = sum(done.values())
    return Copied(copied=copied, present=len(done) - copied)


StoredFiles = tuple[list[StoredFile], str, Callable[[], bool] | None]
"""The files of an entry, the key of its record, and what copies that; None: as the files."""


@singledispatch
def stored_files(entry: BuiltEntry, source: Store, destination: Store, command: str) -> StoredFiles:
    """Return what belongs to an entry; `command` makes what is missing. Raises DeployFailedError.

    Each kind of workload registers its own function.
    """
    raise NotImplementedError


@stored_files.register
def _(entry: LockEntry, source: Store, destination: Store, command: str) -> StoredFiles:
    archive = entry.archive
    prefixes = [f"{NETWORKS_PREFIX}/{key}/" for key in sorted(entry.manifest.network_keys.values())]
    prefixes.append(f"{ENGINES_PREFIX}/{entry.key}/")
    listed = {
        key: size
        for prefix in prefixes
        for key, size in list_objects(source.s3, source.bucket, prefix).items()
    }
    if archive.path not in listed:
        raise _missing(source, archive.path, entry, command)
    listed[archive.path] = archive.size_bytes
    files = [
        StoredFile(key=key, size_bytes=size, sha256=archive.sha256 if key == archive.path else None)
        for key, size in listed.items()
    ]
    return files, engine_record_path(entry.key), None


@stored_files.register
def _(entry: CheckpointEntry, source: Store, destination: Store, command: str) -> StoredFiles:
    _require_record(source, entry, is_needed=command)
    _require_record(destination, entry)
    _refuse_others(destination, entry)
    files = [
        StoredFile(key=f"{entry.prefix}{file.path}", size_bytes=file.size_bytes, sha256=file.sha256)
        for file in entry.files
    ]
    copy_record = partial(_copy_record, source, destination, entry)
    return files, checkpoint_record_path(entry.key), copy_record


def _copy_file(
    source: Store, destination: Store, entry: BuiltEntry, command: str, file: StoredFile
) -> bool:
    """Copy one file; False where it is there."""
    found = object_head(source.s3, source.bucket, file.key)
    if found is None:
        raise _missing(source, file.key, entry, command)
    _require_file(source, file, found)
    there = object_head(destination.s3, destination.bucket, file.key)
    is_new = there is None
    if there is None:
        places = (source.bucket, file.key), (destination.bucket, file.key)
        copy_once(destination.copies, *places, etag=str(found["ETag"]))
        there = object_head(destination.s3, destination.bucket, file.key)
    if there is None:
        raise _change_error(source, file.key)
    _require_file(destination, file, there)
    return is_new


def _require_file(store: Store, file: StoredFile, found: Mapping[str, Any]) -> None:
    """Raise DeployFailedError for another object than is wanted, by S3's own sha256 of it."""
    where, size = f"s3://{store.bucket}/{file.key}", found["ContentLength"]
    way_out = (
        "two builds claim one key. Nothing was overwritten: find out which of them is deployed, "
        "then delete the other."
    )
    if file.sha256 is None:
        if size != file.size_bytes:
            raise DeployFailedError(
                f"{where}: has {size} bytes, and {file.size_bytes} are wanted; {way_out}"
            )
        return
    own = found.get("ChecksumSHA256")
    if own is None:
        raise DeployFailedError(f"{where}: S3 has no sha256 of it; build it again.")
    wanted = base64.b64encode(bytes.fromhex(file.sha256)).decode()
    if (own, size) != (wanted, file.size_bytes):
        raise DeployFailedError(
            f"{where}: has sha256 {own} (base64) and {size} bytes, and the lock says {wanted} and "
            f"{file.size_bytes}; {way_out}"
        )


def _copy_record(source: Store, destination: Store, entry: CheckpointEntry) -> bool:
    """Copy the signed record of a checkpoint; False where it is there."""
    record = checkpoint_record_path(entry.key)
    if object_head(destination.s3, destination.bucket, record) is not None:
        return False
    copy_once(destination.copies, (source.bucket, record), (destination.bucket, record))
    if not _require_record(destination, entry):
        raise _change_error(source, record)
    return True


def _require_record(store: Store, entry: CheckpointEntry, is_needed: str | None = None) -> bool:
    """Return whether a record is there. Raises DeployFailedError for one that is not the lock's.

    `is_needed`: the command that makes one that is not there, which is refused then.
    """
    path = checkpoint_record_path(entry.key)
    content = object_bytes(store.s3, store.bucket, path)
    if content is None:
        if is_needed is not None:
            raise _missing(store, path, entry, is_needed)
        return False
    try:
        found = CheckpointEntry.model_validate_json(content)
    except ValueError:
        found = None
    is_same = found is not None and found.record == entry.record
    if found is None or not is_same or found.signature != entry.signature:
        raise DeployFailedError(
            f"s3://{store.bucket}/{path}: is not the signed record that the lock of {entry.model} "
            "holds; nothing was overwritten: find out which one is deployed, then delete the other."
        )
    return True


def _refuse_others(store: Store, entry: CheckpointEntry) -> None:
    """Raise DeployFailedError for files under the prefix that every copy would load too."""
    wanted = {f"{entry.prefix}{file.path}" for file in entry.files}
    others = sorted(set(list_objects(store.s3, store.bucket, entry.prefix)) - wanted)
    if others:
        raise DeployFailedError(
            f"s3://{store.bucket}/{others[0]}: the lock of {entry.model} does not name it, and "
            "every copy of the endpoint would load it; delete it."
        )


def _missing(store: Store, key: str, entry: BuiltEntry, command: str) -> DeployFailedError:
    return DeployFailedError(
        f"s3://{store.bucket}/{key}: is not there, and the lock of {entry.built_model} names it; "
        f"run {command}, then promote again."
    )


def _change_error(source: Store, key: str) -> DeployFailedError:
    return DeployFailedError(
        f"s3://{source.bucket}/{key}: changed while it was copied; promote again."
    )
