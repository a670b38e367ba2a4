"""A published archive, unpacked: its manifest, and files that are those that the manifest names."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from engine_build.errors import InputRefused
from engine_build.packaging.archive import repackaged_path
from engine_build.store import sha256_of
from onboarding.manifest import MANIFEST_NAME, Manifest
from onboarding.names import ARCHIVE_NAME
from onboarding.plan_key_file import plan_key_path
from onboarding.signature import ENVELOPE_NAME


@dataclass(frozen=True, kw_only=True)
class EngineArchive:
    """An archive's content; `name` is what a user calls it."""

    name: str
    folder: Path
    manifest: Manifest

    @property
    def files(self) -> dict[str, str]:
        """Digests of all files but the engine, its plan's key, and where its plan came from."""
        engine = self.manifest.engine_file
        own = (engine, plan_key_path(engine), repackaged_path(engine))
        return {name: digest for name, digest in self.manifest.files.items() if name not in own}


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
    return EngineArchive(name=str(archive), folder=folder, manifest=manifest)


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
