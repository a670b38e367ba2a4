"""Copies engines and networks between the buckets of two environments, by digest and write-once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding.lock import LockEntry
from onboarding.names import ENGINES_PREFIX, NETWORKS_PREFIX, RECORD_NAME
from roundhouse.aws.clients import Client, calling, list_objects, object_sha256
from roundhouse.errors import DeployFailedError


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
    on_object: Callable[[str], None] = lambda name: None,
) -> Copied:
    """Copy the archive, cards, record and networks of engines; the record is written last.

    What is there with the same content is left: a copy that was broken off goes on. Raises
    DeployFailedError for an archive that is missing, or has other bytes than its lock says, on
    either side.
    """
    copied = present = 0
    seen: set[str] = set()
    for entry in entries:
        archive = entry.archive
        _require(source, entry, object_sha256(source.s3, source.bucket, archive.path))
        there = object_sha256(destination.s3, destination.bucket, archive.path)
        if there is not None:
            _require(destination, entry, there)
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
                _require(destination, entry, found)
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


def _require(store: Store, entry: LockEntry, found: str | None) -> None:
    where, path = f"s3://{store.bucket}/{entry.archive.path}", entry.archive.path
    if found is None:
        raise DeployFailedError(
            f"{where}: is not there, and the lock of {entry.manifest.model} names it; `roundhouse "
            f"build --env {store.environment} --model {entry.manifest.model}` builds it again."
        )
    if found != entry.archive.sha256:
        raise DeployFailedError(
            f"{where}: has sha256 {found[:12]}…, and the lock of {entry.manifest.model} says "
            f"{entry.archive.sha256[:12]}…; two builds claim one key. Nothing was overwritten: "
            f"find out which of them is deployed, then delete {path} on the other side."
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
