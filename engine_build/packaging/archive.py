"""A Triton model repository beside its manifest, as a tar.gz whose bytes follow from its files.

A published one is read back only as its manifest names it.
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from engine_build.errors import InputRefused
from engine_build.store import Store, sha256_of
from onboarding.lock import ArchiveRecord, LockEntry
from onboarding.manifest import MANIFEST_NAME, Manifest, RepackagingRecord
from onboarding.names import (
    ARCHIVE_NAME,
    REPACKAGED_NAME,
    engine_archive_path,
    engine_record_path,
)
from onboarding.signature import ENVELOPE_NAME

CARRIED = Path("container/triton")
MANIFEST_CHECK = "manifest_check.py"
CARRIED_FILES = (
    *("onnxruntime_backend.py", "tokenizer.py", "head_backend.py", "image_backend.py"),
    *("processing_backend.py", MANIFEST_CHECK, "heads.py", "images.py", "image_requests.py"),
    *("processing.py", "answer_check.py"),
)
"""The files of `container/triton` that archives carry: five Triton models, and what they import."""
LEVEL = 1
"""Weights hardly compress, and every start of a server waits for the unpacking."""


def backend_file(roots: tuple[Path, ...], name: str = CARRIED_FILES[0]) -> Path:
    """One of the carried files in the source tree, which must hold them all.

    Raises InputRefused.
    """
    for root in roots:
        if all((root / CARRIED / file).is_file() for file in CARRIED_FILES):
            return root / CARRIED / name
    files = (CARRIED / file for file in (name, *CARRIED_FILES))
    missing = next(file for file in files if not (roots[-1] / file).is_file())
    raise InputRefused(
        f"{missing} is missing from the source tree; the build needs it for the archive: restore "
        "it from git."
    )


def model_repository(folder: Path, files: Mapping[str, Path | str]) -> dict[str, str]:
    """Lays out files by their archive path and returns the sha256 of each.

    A text is written as it stands.
    """
    digests = {}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_bytes(content.encode())
        else:
            shutil.copyfile(content, path)
        digests[name] = sha256_of(path)
    return digests


def archive(folder: Path, manifest: Manifest, path: Path, plan_key: str | None = None) -> LockEntry:
    """Write the manifest beside the repository, and pack both.

    The entry for the lock is read back from the archive.
    """
    (folder / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    pack(folder, path)
    return entry_of(path, manifest.engine_key, plan_key)


def pack(folder: Path, path: Path, names: Iterable[str] | None = None) -> None:
    """Write a tar.gz of a folder's files, names sorted, without times, owners or modes.

    `names` are the files relative to the folder; None: all of them.
    """
    if names is None:
        names = (file.relative_to(folder).as_posix() for file in folder.rglob("*")
                 if file.is_file())  # fmt: skip
    files = {name: folder / name for name in names}
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, file in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = file.stat().st_size, 0o644
            with file.open("rb") as stream:
                tar.addfile(member, stream)


def entry_of(path: Path, engine_key: str, plan_key: str | None = None) -> LockEntry:
    """The lock entry that an archive stands for: nothing but archive and keys decides it.

    Raises ValueError when it is damaged.
    """
    try:
        with tarfile.open(path, "r:gz") as tar:
            manifest = Manifest.from_bytes(_content(tar, MANIFEST_NAME))
            name, repackaged = repackaged_path(manifest.engine_file), None
            if name in manifest.files:
                repackaged = RepackagingRecord.model_validate_json(_content(tar, name))
    except (tarfile.TarError, EOFError, OSError, KeyError) as error:
        raise ValueError(f"{ARCHIVE_NAME} is damaged: {error}") from error
    if manifest.engine_key != engine_key:
        raise ValueError(f"{ARCHIVE_NAME} holds engine {manifest.engine_key}, not {engine_key}")
    record = ArchiveRecord(
        path=engine_archive_path(engine_key),
        sha256=sha256_of(path),
        size_bytes=path.stat().st_size,
        manifest_sha256=manifest.sha256(),
    )
    return LockEntry(archive=record, manifest=manifest, plan_key=plan_key, repackaged=repackaged)


def repackaged_path(engine_file: str) -> str:
    """Return the archive path of the record that tells where an engine file's plan came from."""
    return str(PurePosixPath(engine_file).with_name(REPACKAGED_NAME))


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.extractfile(name)
    return b"" if member is None else member.read()


def publish_record(store: Store, entry: LockEntry, scratch: Path) -> None:
    """Write the record of an engine, JSON, by which a store has it. Raises PublishFailed."""
    record = scratch / "record"
    record.write_text(entry.model_dump_json(indent=2) + "\n", encoding="utf-8")
    store.upload(record, engine_record_path(entry.manifest.engine_key))


def known_engine(store: Store, engine_key: str) -> LockEntry | None:
    """Return a published engine's entry, or None.

    Its record must be readable, and its archive of the size that the record says.
    """
    data = store.read(engine_record_path(engine_key))
    if data is None:
        return None
    try:
        entry = LockEntry.model_validate_json(data)
    except ValueError:
        return None
    if entry.manifest.engine_key != engine_key:
        return None
    is_whole = store.size(engine_archive_path(engine_key)) == entry.archive.size_bytes
    return entry if is_whole else None


@dataclass(frozen=True, kw_only=True)
class EngineArchive:
    """An archive's content."""

    folder: Path
    manifest: Manifest


def read_engine_archive(archive: Path, folder: Path) -> EngineArchive:
    """Unpacks an archive of ours into an empty folder.

    Raises InputRefused when it is damaged, changed or another's.
    """
    try:
        with gzip.open(archive) as stream:
            # To its end, where the checksum of everything is: tarfile stops before it.
            while stream.read(1 << 20):
                pass
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(folder, filter="data")
        manifest = Manifest.from_bytes((folder / MANIFEST_NAME).read_bytes())
    except (OSError, EOFError, tarfile.TarError, zlib.error, ValidationError) as error:
        raise InputRefused(f"{archive}{_reason(archive, folder, error)}.") from error
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    for name in sorted((present - {MANIFEST_NAME, ENVELOPE_NAME}) ^ set(manifest.files)):
        where = (
            "in the archive but not in its manifest"
            if name in present
            else "in the manifest but not in its archive"
        )
        raise InputRefused(f"{archive}: {name} is {where}; publish the engine again.")
    for name, digest in sorted(manifest.files.items()):
        if sha256_of(folder / name) != digest:
            raise InputRefused(
                f"{archive}: {name} is not the file that its manifest names; publish the engine "
                "again."
            )
    return EngineArchive(folder=folder, manifest=manifest)


def _reason(archive: Path, folder: Path, error: Exception) -> str:
    give = "give engine archives that roundhouse published"
    if isinstance(error, FileNotFoundError):
        fault = f"has no {MANIFEST_NAME}" if archive.exists() else "is not there"
        return f" {fault}; {give}"
    if isinstance(error, IsADirectoryError):
        return f" is a folder; give the engine archive itself, such as {archive / ARCHIVE_NAME}"
    if isinstance(error, ValidationError):
        faults = f"({error.error_count()} faults)"
        return f": {MANIFEST_NAME} is not the manifest of one engine {faults}; {give}"
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        fault = f"cannot be read, or not unpacked into {folder.parent}: {error.strerror}"
        return f" {fault}; see to permissions and room there"
    return f" cannot be unpacked ({error}); publish the engine again"
