"""Checkpoints in the tree and in S3, by their digest.

Those in S3 are read from their bucket once, then kept by digest in the environment's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from engine_build.errors import PublishFailed, SourceFault
from engine_build.store import LARGEST_OBJECT_BYTES, Store, sha256_of
from onboarding.checkpoint import CONFIGURATION, checkpoint_sha256, checkpoint_sums
from onboarding.names import SHA256SUMS, source_copy_path
from onboarding.source_access import S3_SCHEME, split_s3

UNREADABLE = (
    "the environment's `source_buckets` must name the bucket, and the policies of the bucket and "
    "of its key must allow the role of the builds to read it"
)


@dataclass(frozen=True, kw_only=True)
class BucketAccess:
    """The stores that a source in S3 is read from and copied to."""

    bucket: Callable[[str], Store]
    """The store of an address such as s3://bucket."""
    copies: Store | None = None
    """Where sources are kept by digest; None: nowhere."""
    own: str | None = None
    """The place of the store that the build publishes to; what lies in it is not copied."""
    largest_copy: int = LARGEST_OBJECT_BYTES
    """Bytes of a file; a checkpoint with a larger one is not kept, and read from its bucket again.
    """

    def keeps(self, address: str) -> bool:
        """Return whether the source of an address is copied."""
        return self.own is None or not address.startswith(f"{self.own}/")

    def copies_of(self, address: str, sha256: str | None) -> Store | None:
        """Return where a source is copied to, and read again; None where it is not kept."""
        return self.copies if sha256 is not None and self.keeps(address) else None


def pinned_checkpoint(
    address: str, sha256: str | None, root: Path, access: BucketAccess, folder: Path
) -> Path:
    """Return a checkpoint whose digest was checked. Raises SourceFault.

    One of the tree at `root` is read where it lies; one in S3 is downloaded into `folder`.
    """
    if address.startswith(S3_SCHEME):
        folder.mkdir(parents=True, exist_ok=True)
        return bucket_checkpoint(address, sha256, access, folder)
    path = root / address
    if not path.is_dir():
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


def bucket_checkpoint(address: str, sha256: str | None, access: BucketAccess, folder: Path) -> Path:
    """Return a checkpoint's folder on this disk, its digest checked. Raises SourceFault."""
    copies = access.copies_of(address, sha256)
    if copies is not None and _copied_checkpoint(copies, str(sha256), folder):
        return folder
    bucket, prefix = split_s3(address)
    store = access.bucket(f"{S3_SCHEME}{bucket}")
    try:
        names = _checkpoint_names(store.names(prefix), prefix, address)
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            store.download(f"{prefix}{name}", folder / name)
    except PublishFailed as error:
        raise unreadable(error) from error
    digest = checkpoint_sha256(folder)
    if digest != sha256:
        raise SourceFault(
            f"checkpoint {address} has digest {digest}, but the model file pins {sha256}; check "
            "which is right."
        )
    sizes = ((folder / name).stat().st_size for name in names)
    if copies is not None and max(sizes) <= access.largest_copy:
        sums = folder.with_name(SHA256SUMS)
        sums.write_text(checkpoint_sums(folder), encoding="utf-8")
        keep(copies, digest, folder, names)
        # The list goes last: a checkpoint is there once this is.
        copies.upload(sums, source_copy_path(digest, SHA256SUMS), only_if_absent=True)
    return folder


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


def _copied_checkpoint(copies: Store, sha256: str, folder: Path) -> bool:
    """Download the copy of a checkpoint; False where there is none whole of that digest."""
    sums = copies.read(source_copy_path(sha256, SHA256SUMS))
    if sums is None or hashlib.sha256(sums).hexdigest() != sha256:
        return False
    for line in sums.decode().splitlines():
        digest, _, name = line.partition("  ")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not copies.download(source_copy_path(sha256, name), path) or sha256_of(path) != digest:
            return False
    return True


def keep(copies: Store, sha256: str, folder: Path, names: Iterable[str]) -> None:
    for name in names:
        if (folder / name).is_file():
            copies.upload(folder / name, source_copy_path(sha256, name), only_if_absent=True)


def unreadable(error: PublishFailed) -> SourceFault:
    """Return the fault of a bucket that the builds may not read."""
    reason = str(error).partition("; no engine was published")[0]
    return SourceFault(f"{reason}; {UNREADABLE}.")
