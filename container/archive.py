"""The engine archive as the Python server reads it: checked file by file, or refused."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from container.triton.manifest_check import Refused, refuse_changed_files
from onboarding.manifest import MANIFEST_NAME, Manifest, RuntimeIdentity
from onboarding.signature import (
    UNTRUSTED,
    PublicKey,
    SignatureFault,
    verify_envelope,
)
from onboarding.values import is_same_build

CPU = "cpu"
"""The compute capability of engines that need no GPU."""
HARDWARE_COMPATIBLE, LEAST_COMPATIBLE = "--hardwareCompatibilityLevel=ampere+", 8.0
"""trtexec's option for a plan that runs on this compute capability and newer ones."""
VERSION_COMPATIBLE = "--versionCompatible"
"""trtexec's option for a plan that carries host code."""


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

    @property
    def plugins(self) -> tuple[Path, ...]:
        """Libraries of the plan's custom operators."""
        return tuple(self.root / name for name in self.manifest.plugins)

    @property
    def runs_host_code(self) -> bool:
        """True when trtexec compiled the plan version-compatible, so that it carries host code."""
        return VERSION_COMPATIBLE in _trtexec_arguments(self.manifest)


@dataclass(frozen=True, kw_only=True)
class SupportedRuntimes:
    """The runtimes of a process, each with a compute capability, and why others are absent."""

    pairs: tuple[tuple[RuntimeIdentity, str], ...]
    absences: Mapping[str, str] = field(default_factory=dict)


def verify_archive(
    root: Path,
    *,
    running: SupportedRuntimes,
    manifest_sha256: str | None,
    signers: Collection[PublicKey] = (),
) -> EngineArchive:
    """Return the archive under `root` once every digest holds and this process can run its engine.

    Where there are signers, one of them signed the manifest. Raises ArchiveRefused.
    """
    manifest = _read_manifest(root, manifest_sha256, signers)
    _refuse_processing(manifest)
    _refuse_foreign_engine(manifest, running)
    _refuse_changed_files(root, manifest)
    return EngineArchive(root=root, manifest=manifest)


def _read_manifest(root: Path, expected: str | None, signers: Collection[PublicKey]) -> Manifest:
    path = root / MANIFEST_NAME
    if not path.is_file():
        raise ArchiveRefused(
            f"Refused: {MANIFEST_NAME} is missing in {root}; only archives that roundhouse built "
            "are served."
        )
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if expected is not None and digest != expected:
        raise ArchiveRefused(
            f"Refused: {MANIFEST_NAME} has sha256 {digest}, but the deployment pins {expected}; "
            "deploy the archive the lock names."
        )
    if signers:
        try:
            verify_envelope(root, digest, signers)
        except SignatureFault as fault:
            raise ArchiveRefused(f"Refused: {fault}; {UNTRUSTED}.") from fault
    try:
        return Manifest.from_bytes(data)
    except ValidationError as fault:
        first = fault.errors()[0]
        location = ".".join(map(str, first["loc"])) or "the whole file"
        raise ArchiveRefused(
            f"Refused: {MANIFEST_NAME} cannot be read ({location}: {first['msg']}); build the "
            "engine again."
        ) from fault


def _refuse_processing(manifest: Manifest) -> None:
    if manifest.preprocessing is not None or manifest.postprocessing is not None:
        raise ArchiveRefused(
            "Refused: the archive has preprocessing or postprocessing, which Triton runs in a "
            "process of its own; serve it with `server: triton`."
        )
    if manifest.ensemble is not None:
        raise ArchiveRefused(
            "Refused: the archive holds an ensemble of several models, which Triton runs; serve it "
            "with `server: triton`."
        )


def _refuse_foreign_engine(manifest: Manifest, running: SupportedRuntimes) -> None:
    name, version = manifest.runtime.name, manifest.runtime.version
    if manifest.plan is not None:  # the exact TensorRT build
        version = manifest.plan.tensorrt
    absence = running.absences.get(name)
    lacking = "" if absence is None else f" ({absence})"
    fitting = [
        capability
        for runtime, capability in running.pairs
        if runtime.name == name and is_same_build(version, runtime.version)
    ]
    if not fitting:
        runtimes = dict.fromkeys(
            f"{runtime.name} {runtime.version}" for runtime, _ in running.pairs
        )
        raise ArchiveRefused(
            f"Refused: the engine was made for {name} {version}, this server runs "
            f"{', '.join(runtimes)}{lacking}; build it for this platform."
        )
    if not any(_runs_on(manifest, capability) for capability in fitting):
        raise ArchiveRefused(
            f"Refused: the engine was made for compute capability {manifest.compute_capability}, "
            f"this server runs {', '.join(fitting)}{lacking}; build it for this target."
        )


def _runs_on(manifest: Manifest, capability: str) -> bool:
    if manifest.compute_capability == capability:
        return True
    is_portable = HARDWARE_COMPATIBLE in _trtexec_arguments(manifest)
    return is_portable and capability != CPU and float(capability) >= LEAST_COMPATIBLE


def _trtexec_arguments(manifest: Manifest) -> list[str]:
    return [] if manifest.plan is None else shlex.split(manifest.plan.command)


def _refuse_changed_files(root: Path, manifest: Manifest) -> None:
    try:
        refuse_changed_files(root, manifest.files)
    except Refused as refusal:
        raise ArchiveRefused(str(refusal)) from refusal
    for name in (manifest.engine_file, *manifest.plugins, manifest.tokenizer_file):
        if name is not None and name not in manifest.files:
            raise ArchiveRefused(
                f"Refused: {name} is named in {MANIFEST_NAME} but is not in the archive; publish "
                "the archive again."
            )
