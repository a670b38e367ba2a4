"""A checkpoint folder of the onboarding tree: its files, and the one digest that pins them all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

CONFIGURATION = "config.json"


def checkpoint_files(folder: Path) -> tuple[str, ...]:
    """Every file under a folder, as sorted relative paths; hidden ones are none of it."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return tuple(
        sorted(
            path.as_posix()
            for path in files
            if not any(part.startswith(".") for part in path.parts)
        )
    )


def checkpoint_sha256(folder: Path) -> str:
    """Return one digest of a folder: `sha256sum` of what `sha256sum` prints, sorted by path."""
    return files_sha256(folder, checkpoint_files(folder))


def files_sha256(folder: Path, names: Iterable[str]) -> str:
    """Return one digest of some files of a folder, by their paths in the order given."""
    return hashlib.sha256(file_sums(folder, names).encode()).hexdigest()


def file_sums(folder: Path, names: Iterable[str]) -> str:
    """Return what `sha256sum` prints of some files of a folder."""
    lines = []
    for name in names:
        with (folder / name).open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n")
    return "".join(lines)
