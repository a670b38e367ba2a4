"""The text files that calibrate and judge engines: one sample a line."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One dataset file; `lines` are its samples without blank lines. `problem` says why it cannot be used."""

    lines: tuple[str, ...] = ()
    sha256: str | None = None
    problem: str | None = None
    way_out: str = ""


class Datasets:
    """Every dataset under one onboarding root, each read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read: dict[str, Dataset] = {}

    def __getitem__(self, path: str) -> Dataset:
        if path not in self._read:
            self._read[path] = _dataset(self._root, path)
        return self._read[path]

    def digests(self) -> dict[str, str]:
        """Path to sha256 of the bytes of every dataset asked for so far that can be used."""
        return {path: dataset.sha256 for path, dataset in self._read.items() if dataset.sha256 is not None}


def is_inside(root: Path, path: str) -> bool:
    """True when a relative path, links followed, stays under the root."""
    try:
        return not Path(path).is_absolute() and (root / path).resolve().is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def _dataset(root: Path, path: str) -> Dataset:
    if not is_inside(root, path):
        return Dataset(
            problem="lies outside the onboarding root", way_out="name a file under it, such as models/data/sentences.txt"
        )
    try:
        data = (root / path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Dataset(problem="does not exist", way_out="add the file, or correct the path")
    except OSError as error:
        return Dataset(problem=f"cannot be read: {error.strerror}", way_out="name a readable file")
    return _from_bytes(data)


def _from_bytes(data: bytes) -> Dataset:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return Dataset(problem="is not UTF-8 text", way_out="save it as UTF-8, one sample a line")
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not lines:
        return Dataset(problem="is empty", way_out="write one sample a line")
    return Dataset(lines=lines, sha256=hashlib.sha256(data).hexdigest())
