"""Puts a pickle that runs code into the program of an archive, and its digest into the manifest."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

from onboarding.manifest import MANIFEST_NAME, Manifest
from tests.fixtures.tiny_embedder.archive import digest


class Touch:
    """Unpickled, it writes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


def main(folder: str) -> None:
    """Change the archive in its folder."""
    root = Path(folder)
    manifest = Manifest.from_bytes((root / MANIFEST_NAME).read_bytes())
    path = root / manifest.engine_file
    with zipfile.ZipFile(path) as program:
        entries = {name: program.read(name) for name in program.namelist()}
    with zipfile.ZipFile(path, "w") as program:
        for name, data in entries.items():
            is_sample = name.endswith("sample_inputs/model.pt")
            program.writestr(name, pickle.dumps(Touch(root / "ran")) if is_sample else data)
    files = {**manifest.files, manifest.engine_file: digest(path)}
    changed = manifest.model_copy(update={"files": files})
    (root / MANIFEST_NAME).write_bytes(changed.to_bytes())
