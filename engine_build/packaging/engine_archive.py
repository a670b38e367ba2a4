"""A published archive, opened.

Its manifest, and its files where each is the one that the manifest names.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from engine_build.errors import InputRefused
from engine_build.store import sha256_of
from onboarding.manifest import MANIFEST_NAME, Manifest

ARCHIVE = "model.tar.gz"
"""How a build names what it publishes."""


@dataclass(frozen=True, kw_only=True)
class EngineArchive:
    """An archive's content; `name` is what a user calls it."""

    name: str
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
    except FileNotFoundError as error:
        what = f"has no {MANIFEST_NAME}" if archive.exists() else "is not there"
        raise InputRefused(
            f"{archive} {what}; give engine archives that roundhouse published."
        ) from error
    except IsADirectoryError as error:
        raise InputRefused(
            f"{archive} is a folder; give the engine archive itself, such as {archive / ARCHIVE}."
        ) from error
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputRefused(
            f"{archive} cannot be unpacked ({error}); publish the engine again."
        ) from error
    except OSError as error:
        sentence = (
            f"{archive} cannot be read, or not unpacked into {folder.parent}: {error.strerror}"
        )
        raise InputRefused(f"{sentence}; see to permissions and room there.") from error
    except ValidationError as error:
        sentence = (
            f"{MANIFEST_NAME} is not the manifest of one engine ({error.error_count()} faults)"
        )
        raise InputRefused(
            f"{archive}: {sentence}; give engine archives that roundhouse published."
        ) from error
    _refuse_changed(archive, folder, manifest)
    return EngineArchive(name=str(archive), folder=folder, manifest=manifest)


def _refuse_changed(archive: Path, folder: Path, manifest: Manifest) -> None:
    present = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    } - {MANIFEST_NAME}
    for name in sorted(present ^ set(manifest.files)):
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
