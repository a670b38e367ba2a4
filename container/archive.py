"""The engine archive as a server finds it: read, verified and refused in one sentence."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from onboarding.manifest import MANIFEST_NAME, Manifest, RuntimeIdentity


class ArchiveRefused(Exception):
    """The archive is not this server's to run; the message is the whole sentence."""


@dataclass(frozen=True, kw_only=True)
class EngineArchive:
    """An extracted archive whose every byte is the one its manifest names."""

    root: Path
    manifest: Manifest

    @property
    def engine(self) -> Path:
        """The engine's file."""
        return self.root / self.manifest.engine_file

    @property
    def tokenizer(self) -> Path | None:
        """The tokenizer's file; `None` when the engine takes tensors."""
        name = self.manifest.tokenizer_file
        return None if name is None else self.root / name


def verified_archive(
    root: Path, *, runtime: RuntimeIdentity, compute_capability: str, manifest_sha256: str | None
) -> EngineArchive:
    """The archive under `root`, once the whole digest chain holds and the engine is this server's. Raises ArchiveRefused."""
    manifest = _manifest(root, manifest_sha256)
    _refuse_foreign_engine(manifest, runtime, compute_capability)
    _refuse_changed_files(root, manifest)
    return EngineArchive(root=root, manifest=manifest)


def _manifest(root: Path, expected: str | None) -> Manifest:
    path = root / MANIFEST_NAME
    if not path.is_file():
        raise ArchiveRefused(f"Refused: {MANIFEST_NAME} is missing in {root}; only archives that roundhouse built are served.")
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if expected is not None and found != expected:
        raise ArchiveRefused(
            f"Refused: {MANIFEST_NAME} has sha256 {found}, but the deployment pins {expected}; deploy the archive the lock names."
        )
    try:
        return Manifest.from_bytes(data)
    except ValidationError as fault:
        first = fault.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        sentence = f"Refused: {MANIFEST_NAME} cannot be read ({place}: {first['msg']}); build the engine again."
        raise ArchiveRefused(sentence) from fault


def _refuse_foreign_engine(manifest: Manifest, runtime: RuntimeIdentity, compute_capability: str) -> None:
    made = manifest.runtime
    if made != runtime:
        raise ArchiveRefused(
            f"Refused: the engine was made for {made.name} {made.version}, "
            f"this server runs {runtime.name} {runtime.version}; build it for this platform."
        )
    if manifest.compute_capability != compute_capability:
        raise ArchiveRefused(
            f"Refused: the engine was made for compute capability {manifest.compute_capability}, "
            f"this server runs {compute_capability}; build it for this target."
        )


def _refuse_changed_files(root: Path, manifest: Manifest) -> None:
    present = {
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    present.discard(MANIFEST_NAME)
    needed = {manifest.engine_file, *([] if manifest.tokenizer_file is None else [manifest.tokenizer_file])}
    for name in sorted((set(manifest.files) | needed) - present):
        raise ArchiveRefused(f"Refused: {name} is named in {MANIFEST_NAME} but is not in the archive; publish the archive again.")
    for name in sorted(present - set(manifest.files)):
        raise ArchiveRefused(f"Refused: {name} is in the archive but not named in {MANIFEST_NAME}; publish the archive again.")
    for name, digest in sorted(manifest.files.items()):
        found = _sha256(root / name)
        if found != digest:
            sentence = f"Refused: {name} has sha256 {found}, but {MANIFEST_NAME} says {digest}; publish the archive again."
            raise ArchiveRefused(sentence)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
