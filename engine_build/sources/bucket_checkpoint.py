"""Checkpoints in the tree and in S3, by their digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from engine_build.errors import PublishFailed, SourceFault
from engine_build.store import Store
from onboarding.checkpoint import CONFIGURATION, checkpoint_sha256
from onboarding.source_access import S3_SCHEME, split_s3

Bucket = Callable[[str], Store]
"""The store of an address such as s3://bucket."""
UNREADABLE = (
    "the environment's `source_buckets` must name the bucket, and the policies of the bucket and "
    "of its key must allow the role of the builds to read it"
)


def pinned_checkpoint(
    address: str, sha256: str | None, root: Path, bucket: Bucket, folder: Path
) -> Path:
    """Return a checkpoint whose digest was checked. Raises SourceFault.

    One of the tree at `root` is read where it lies; one in S3 is downloaded into `folder`.
    """
    path = root / address
    if address.startswith(S3_SCHEME):
        path = folder
        _download(address, bucket, folder)
    elif not path.is_dir():
        raise SourceFault(
            f"{address} is no folder under {root}; add it, or correct the model file."
        )
    digest = checkpoint_sha256(path)
    if digest != sha256:
        raise SourceFault(
            f"checkpoint {address} has digest {digest}, but the model file pins {sha256}; check "
            "which is right."
        )
    return path


def _download(address: str, bucket: Bucket, folder: Path) -> None:
    name, prefix = split_s3(address)
    store = bucket(f"{S3_SCHEME}{name}")
    try:
        for file in _checkpoint_names(store.names(prefix), prefix, address):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            store.download(f"{prefix}{file}", folder / file)
    except PublishFailed as error:
        raise unreadable(error) from error


def _checkpoint_names(keys: Iterable[str], prefix: str, address: str) -> tuple[str, ...]:
    """Return the files under a prefix; hidden ones are none of a checkpoint."""
    names = tuple(key.removeprefix(prefix) for key in keys if not key.endswith("/"))
    kept = tuple(
        name for name in names if not any(part.startswith(".") for part in name.split("/"))
    )
    for name in kept:
        if "" in name.split("/"):
            raise SourceFault(f"{address} holds {name!r}, which is no file of a folder; rename it.")
    if CONFIGURATION not in kept:
        raise SourceFault(
            f"{address} holds no {CONFIGURATION}; upload the checkpoint there, or correct the "
            "model file."
        )
    return kept


def unreadable(error: PublishFailed) -> SourceFault:
    """Return the fault of a bucket that the builds may not read."""
    reason = str(error).partition("; no engine was published")[0]
    return SourceFault(f"{reason}; {UNREADABLE}.")
