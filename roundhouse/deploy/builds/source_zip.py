"""The sources that a build runs from, as one zip: the same files give the same bytes, wherever and
whenever they are zipped.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

CODE_FOLDERS = ("onboarding", "engine_build", "container")
TREE_FOLDERS = ("models", "endpoints", "environments")
LEFT_OUT = ("__pycache__", ".pyc", ".lock.yaml")
EPOCH = (1980, 1, 1, 0, 0, 0)


def source_zip(code: Path, tree: Path, extra_files: Iterable[str] = ()) -> bytes:
    """The zip of the code's folders, the tree's folders, and `extra_files` of the tree (paths
    relative to it).
    """
    files = dict(_files(code, CODE_FOLDERS)) | dict(_files(tree, TREE_FOLDERS))
    files |= {name: tree / name for name in extra_files if (tree / name).is_file()}
    return zipped({name: path.read_bytes() for name, path in files.items()})


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip of files by name, without their times and modes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def source_path(data: bytes) -> str:
    """Object key of a source zip: its content's address."""
    from onboarding.names import SOURCES_PREFIX

    return f"{SOURCES_PREFIX}/{hashlib.sha256(data).hexdigest()}.zip"


def folder_digest(root: Path, folders: Iterable[str]) -> str:
    """Hex digest of every file's name and bytes, locks included."""
    digest = hashlib.sha256()
    for folder in sorted(folders):
        for path in sorted(
            path
            for path in (root / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        ):
            digest.update(
                f"{path.relative_to(root).as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()
            )
    return digest.hexdigest()


def _files(root: Path, folders: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for folder in folders:
        for path in (root / folder).rglob("*"):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not any(part in name for part in LEFT_OUT):
                yield name, path
