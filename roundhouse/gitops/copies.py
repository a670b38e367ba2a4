"""Copies engines and networks between the buckets of two environments, by digest and write-once."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from onboarding.lock import BuiltEntry, LockEntry
from onboarding.names import ENGINES_PREFIX, NETWORKS_PREFIX, RECORD_NAME, checkpoint_record_path
from onboarding.text_generation.checkpoint_lock import CheckpointEntry, CheckpointFile
from roundhouse.aws.clients import (
    Client,
    calling,
    copy_once,
    list_objects,
    object_bytes,
    object_head,
    object_sha256,
)
from roundhouse.errors import DeployFailedError

AT_ONCE = 8
"""S3 copies a file of 5 GB, the largest there is, in one request that takes minutes."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """One environment's bucket, with clients of its region; `copies` copies into it."""

    environment: str
    bucket: str
    s3: Client
    copies: Client


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a copy did: objects that were copied, and those that were there."""

    copied: int
    present: int


def copy_engines(
    source: Store,
    destination: Store,
    entries: Sequence[LockEntry],
    commands: Mapping[str, str],
    on_object: Callable[[str], None] = lambda name: None,
) -> Copied:
    """Copy the archive, record and networks of engines; the record is written last.

    What is there with the same content is left: a copy that was broken off goes on. `commands`
    bring each engine key into the source. Raises DeployFailedError for an archive that is missing,
    or has other bytes than its lock says, on either side.
    """
    copied = present = 0
    seen: set[str] = set()
    for entry in entries:
        archive = entry.archive
        command = commands[entry.manifest.engine_key]
        _require(source, entry, object_sha256(source.s3, source.bucket, archive.path), command)
        there = object_sha256(destination.s3, destination.bucket, archive.path)
        if there is not None:
            _require(destination, entry, there, command)
        for key, size in _objects(source, entry):
            if key in seen:
                continue  # a network of two engines
            seen.add(key)
            on_object(key)
            present_size = _size(destination, key)
            if present_size == size:
                present += 1
                continue
            if present_size is not None:
                raise DeployFailedError(
                    f"s3://{destination.bucket}/{key}: has {present_size} bytes, and "
                    f"{source.environment}'s has {size}; nothing was overwritten. Find out which "
                    "one is deployed, then delete the other."
                )
            _copy_object(source, destination, key)
            copied += 1
            if key == archive.path:
                found = object_sha256(destination.s3, destination.bucket, key)
                _require(destination, entry, found, command)
    return Copied(copied=copied, present=present)


def _copy_object(source: Store, destination: Store, key: str) -> None:
    """Copy within S3, in parts where an object is large, on the condition that none is there.

    Tags stay behind: `prune` may have marked the source's object.
    """
    for operation in ("CopyObject", "CompleteMultipartUpload"):
        # boto3's managed copy has no argument for the condition.
        event = f"before-parameter-build.s3.{operation}"
        destination.copies.meta.events.register(
            event, _write_once, unique_id=f"write-once-{operation}"
        )
    with calling(f"Copying {key} to s3://{destination.bucket}"):
        destination.copies.copy(
            {"Bucket": source.bucket, "Key": key},
            destination.bucket,
            key,
            ExtraArgs={"TaggingDirective": "REPLACE"},
            SourceClient=source.s3,
        )


def _write_once(params: dict[str, Any], **_: Any) -> None:
    params["IfNoneMatch"] = "*"


def _require(store: Store, entry: LockEntry, found: str | None, command: str) -> None:
    path = entry.archive.path
    if found is None:
        raise _missing(store, path, entry, command)
    if found != entry.archive.sha256:
        raise DeployFailedError(
            f"s3://{store.bucket}/{path}: has sha256 {found[:12]}…, and the lock of "
            f"{entry.manifest.model} says {entry.archive.sha256[:12]}…; two builds claim one key. "
            "Nothing was overwritten: find out which of them is deployed, then delete "
            f"{path} on the other side."
        )


def _objects(store: Store, entry: LockEntry) -> Iterator[tuple[str, int]]:
    """Yield key and size of everything that belongs to an engine, its record last."""
    prefixes = [f"{NETWORKS_PREFIX}/{key}/" for key in sorted(entry.manifest.network_keys.values())]
    engine = f"{ENGINES_PREFIX}/{entry.manifest.engine_key}/"
    own = list_objects(store.s3, store.bucket, engine).items()
    for prefix in prefixes:
        yield from list_objects(store.s3, store.bucket, prefix).items()
    yield from sorted(own, key=lambda item: item[0].endswith(RECORD_NAME))


def _size(store: Store, key: str) -> int | None:
    return list_objects(store.s3, store.bucket, key).get(key)


def copy_checkpoints(
    source: Store,
    destination: Store,
    entries: Sequence[CheckpointEntry],
    commands: Mapping[str, str],
    on_object: Callable[[str], None] = lambda name: None,
) -> Copied:
    """Copy the files of checkpoints and, last, their signed records.

    No byte is read here: S3 knows the sha256 of each file and keeps it in the copy. What is there
    with the same content is left: a copy that was broken off goes on. `commands` bring the files of
    each checkpoint key into the source. Raises DeployFailedError for a record or file that is
    missing, or is another than the lock says, on either side.
    """
    copied = present = 0
    for entry in entries:
        command = commands[entry.checkpoint_key]
        if not _has_record(source, entry):
            raise _missing(source, checkpoint_record_path(entry.key), entry, command)
        _has_record(destination, entry)
        _refuse_others(destination, entry)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            copy = partial(_copy_file, source, destination, entry, command)
            for file, is_new in zip(entry.files, pool.map(copy, entry.files), strict=True):
                on_object(f"{entry.prefix}{file.path}")
                copied, present = copied + is_new, present + (not is_new)
        record = checkpoint_record_path(entry.key)
        on_object(record)
        is_new = object_head(destination.s3, destination.bucket, record) is None
        if is_new:
            copy_once(destination.copies, (source.bucket, record), (destination.bucket, record))
            if not _has_record(destination, entry):
                raise _change_error(source, record)
        copied, present = copied + is_new, present + (not is_new)
    return Copied(copied=copied, present=present)


def _copy_file(
    source: Store,
    destination: Store,
    entry: CheckpointEntry,
    command: str,
    file: CheckpointFile,
) -> bool:
    """Copy one file; False where it is there."""
    key = f"{entry.prefix}{file.path}"
    found = object_head(source.s3, source.bucket, key)
    if found is None:
        raise _missing(source, key, entry, command)
    _require_file(source, key, file, found)
    there = object_head(destination.s3, destination.bucket, key)
    is_new = there is None
    if there is None:
        etag = str(found["ETag"])
        copy_once(destination.copies, (source.bucket, key), (destination.bucket, key), etag=etag)
        there = object_head(destination.s3, destination.bucket, key)
    if there is None:
        raise _change_error(source, key)
    _require_file(destination, key, file, there)
    return is_new


def _require_file(store: Store, key: str, file: CheckpointFile, found: Mapping[str, Any]) -> None:
    """Raise DeployFailedError for another object than the lock says, by S3's own sha256 of it."""
    where = f"s3://{store.bucket}/{key}"
    own = found.get("ChecksumSHA256")
    if own is None:
        raise DeployFailedError(f"{where}: S3 has no sha256 of it; build the checkpoint again.")
    wanted = base64.b64encode(bytes.fromhex(file.sha256)).decode()
    if (own, found["ContentLength"]) != (wanted, file.size_bytes):
        raise DeployFailedError(
            f"{where}: has sha256 {own} (base64) and {found['ContentLength']} bytes, and the lock "
            f"says {wanted} and {file.size_bytes}; two builds claim one key. Nothing was "
            f"overwritten: find out which of them is deployed, then delete the other."
        )


def _has_record(store: Store, entry: CheckpointEntry) -> bool:
    """Return whether a record is there. Raises DeployFailedError for one that is not the lock's."""
    path = checkpoint_record_path(entry.key)
    content = object_bytes(store.s3, store.bucket, path)
    if content is None:
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


CopyEntries = Callable[
    [Store, Store, Sequence[Any], Mapping[str, str], Callable[[str], None]], Copied
]
"""Source, destination, lock entries, the command that makes each key, and who hears of objects."""
COPY_FUNCTIONS: dict[type[BuiltEntry], CopyEntries] = {
    LockEntry: copy_engines,
    CheckpointEntry: copy_checkpoints,
}
"""What copies the entries of each kind of workload."""
