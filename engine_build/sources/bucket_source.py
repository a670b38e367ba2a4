"""Networks in S3: read from their bucket once, then kept by digest in the environment's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

from engine_build.errors import PublishFailed, SourceFault
from engine_build.onnx_graph.external_data import refuse_large
from engine_build.sources.bucket_checkpoint import BucketAccess, keep, unreadable
from engine_build.store import Store, sha256_of
from onboarding.checkpoint import files_sha256
from onboarding.names import source_copy_path
from onboarding.source_access import S3_SCHEME, split_s3

BESIDE_NETWORK = ("tokenizer.json", "config.json", "preprocessor_config.json")
"""Files beside a network: its tokenizer, its class names, and how images become its input."""


def bucket_network(
    address: str,
    sha256: str | None,
    access: BucketAccess,
    folder: Path,
    external_names: Callable[[Path], Iterable[str]] = lambda path: (),
) -> Path:
    """Return an ONNX file, its data files and the files beside it. Raises SourceFault.

    It keeps its name, which is a part of the digest where data files are.
    """
    bucket, key = split_s3(address)
    path = folder / PurePosixPath(key).name
    copies = access.copies_of(address, sha256)
    if copies is not None and _copied_network(copies, str(sha256), path, external_names):
        return path
    store = access.bucket(f"{S3_SCHEME}{bucket}")
    try:
        size = store.size(key)
        if size is None:
            raise SourceFault(f"{address} does not exist; upload it, or correct the model file.")
        refuse_large(address, size)
        store.download(key, path)
        names = tuple(external_names(path))
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            data = str(PurePosixPath(key).parent / name)
            if not store.download(data, folder / name):
                raise SourceFault(
                    f"{address} keeps weights in {name}, and {S3_SCHEME}{bucket}/{data} does not "
                    "exist; upload it beside the ONNX file."
                )
        for name in BESIDE_NETWORK:
            store.download(str(PurePosixPath(key).with_name(name)), path.with_name(name))
    except PublishFailed as error:
        raise unreadable(error) from error
    if copies is not None and _network_sha256(path, names) == sha256:
        # The network goes last: whoever finds it finds what lies beside it.
        keep(copies, str(sha256), folder, (*names, *BESIDE_NETWORK, path.name))
    return path


def _copied_network(
    copies: Store, sha256: str, path: Path, external_names: Callable[[Path], Iterable[str]]
) -> bool:
    """Download the copy of a network; False where there is none whole of that digest."""
    if not copies.download(source_copy_path(sha256, path.name), path):
        return False
    names = tuple(external_names(path))
    for name in names:
        (path.parent / name).parent.mkdir(parents=True, exist_ok=True)
        if not copies.download(source_copy_path(sha256, name), path.parent / name):
            return False
    if _network_sha256(path, names) != sha256:
        return False
    for name in BESIDE_NETWORK:
        copies.download(source_copy_path(sha256, name), path.with_name(name))
    return True


def _network_sha256(path: Path, names: Sequence[str]) -> str:
    return files_sha256(path.parent, sorted((path.name, *names))) if names else sha256_of(path)
