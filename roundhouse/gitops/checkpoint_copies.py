"""Copies checkpoints between the buckets of two environments: each file by S3, and write-once."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from onboarding.names import checkpoint_record_path
from onboarding.text_generation.checkpoint_lock import CheckpointEntry, CheckpointFile
from onboarding.text_generation.checkpoint_record import record_bytes
from roundhouse.aws.clients import copy_once, list_objects, object_bytes, object_head
from roundhouse.errors import DeployFailedError
from roundhouse.gitops.copies import Copied, Store

AT_ONCE = 8
"""S3 copies a file of 5 GB, the largest there is, in one request that takes minutes."""


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
            raise _missing(source, checkpoint_record_path(entry.checkpoint_key), entry, command)
        _has_record(destination, entry)
        _refuse_others(destination, entry)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            copy = partial(_copy_file, source, destination, entry, command)
            for file, is_new in zip(entry.files, pool.map(copy, entry.files), strict=True):
                on_object(f"{entry.prefix}{file.path}")
                copied, present = copied + is_new, present + (not is_new)
        record = checkpoint_record_path(entry.checkpoint_key)
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
    path = checkpoint_record_path(entry.checkpoint_key)
    content = object_bytes(store.s3, store.bucket, path)
    if content is None:
        return False
    try:
        found = CheckpointEntry.model_validate_json(content)
    except ValueError:
        found = None
    is_same = found is not None and record_bytes(found) == record_bytes(entry)
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


def _missing(store: Store, key: str, entry: CheckpointEntry, command: str) -> DeployFailedError:
    return DeployFailedError(
        f"s3://{store.bucket}/{key}: is not there, and the lock of {entry.model} names it; "
        f"run {command}, then promote again."
    )


def _change_error(source: Store, key: str) -> DeployFailedError:
    return DeployFailedError(
        f"s3://{source.bucket}/{key}: changed while it was copied; promote again."
    )
