"""Model archives: tar.gz from S3, unpacked with nothing reaching outside their folder."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path, PurePosixPath


class ArchiveError(Exception):
    """An archive cannot be unpacked; the message is one sentence."""


def s3_location(url: str) -> tuple[str, str]:
    """Bucket and key of an s3:// URL."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key


def unpack_model(content: bytes, folder: Path, origin: str) -> None:
    """Unpack a tar.gz of plain files and folders; refuse links, devices and paths outside."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            members = archive.getmembers()
            for member in members:
                _check_member(member.name, member.isfile() or member.isdir(), origin)
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = staticmethod(tarfile.data_filter)
            archive.extractall(folder, members)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ArchiveError(
            f"the archive {origin} cannot be unpacked as tar.gz ({error})"
        ) from error


def unpack_source(content: bytes, folder: Path, origin: str) -> None:
    """Unpacks a zip of build sources, keeping the execute bits it records."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.infolist():
                _check_member(member.filename, True, origin)
                path = Path(archive.extract(member, folder))
                if not member.is_dir() and member.external_attr >> 16 & 0o111:
                    path.chmod(path.stat().st_mode | 0o111)
    except (zipfile.BadZipFile, OSError) as error:
        raise ArchiveError(
            f"the source archive {origin} cannot be unpacked as zip ({error})"
        ) from error


def _check_member(name: str, plain: bool, origin: str) -> None:
    path = PurePosixPath(name)
    if not plain or path.is_absolute() or ".." in path.parts:
        raise ArchiveError(
            f"the archive {origin} holds {name!r}, which is no plain file or folder inside it"
        )
