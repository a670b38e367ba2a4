"""Engine archives as a build publishes them, and the same archives damaged."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from engine_build.packaging.archive import archive, model_repository
from engine_build.packaging.repository import repository
from onboarding.manifest import MANIFEST_NAME, BuilderRecord, Manifest, RuntimeIdentity
from tests.unit.engine_build import golden_configurations as golden
from tests.unit.engine_build.stand_ins import ROOT

ENGINE = "embedder_engine"


def publish_test_archive(
    folder: Path,
    capability: str,
    *,
    tokenizer: bytes = b"{}",
    shown=None,
    is_cpu=False,
    **changes: object,
) -> Path:
    """An engine archive as a build publishes it; `changes` replace fields of its manifest."""
    shown = golden.served_model() if shown is None else shown
    out = folder / capability
    out.mkdir(parents=True)
    (out / "plan").write_bytes(b"plan for " + capability.encode())
    (out / "tokenizer.json").write_bytes(tokenizer)
    token_file = out / "tokenizer.json" if shown.is_text else None
    laid = repository(
        shown,
        out / "plan",
        token_file,
        runtime="onnxruntime" if is_cpu else "tensorrt",
        code_roots=(ROOT,),
    )
    files = model_repository(out / "archive", laid.files)
    fields = {
        "model": shown.model,
        "task": shown.task,
        "engine_key": capability.replace(".", "") * 10,
        "network_keys": {"float": "1"},
        "platform": "triton-26.05",
        "runtime": RuntimeIdentity(name="tensorrt", version="10.16.1.11"),
        "compute_capability": capability,
        "requested_precision": "auto",
        "precision": "fp16",
        "decision": "faster",
        "engine_file": laid.engine_file,
        "tokenizer_file": laid.tokenizer_file,
        "inputs": shown.client_inputs,
        "outputs": shown.client_outputs,
        "optimization_profiles": shown.profiles,
        "max_batch_size": shown.max_batch_size,
        "files": files,
        "accuracy": (),
        "compile_checks": (),
        "benchmark": (),
        "load_seconds": 1.0,
        "host_memory_mib": 1.0,
        "builder": BuilderRecord(machine="x86_64", built_at="2026-01-01T00:00:00Z"),
    }
    archive(out / "archive", Manifest(**(fields | changes)), out / "model.tar.gz")
    return out / "model.tar.gz"


def read_files(path: Path) -> dict[str, bytes]:
    """Every file of an archive."""
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def manifest_without(path: Path, name: str) -> bytes:
    """The manifest of an archive, one file less."""
    manifest = Manifest.from_bytes(read_files(path)[MANIFEST_NAME])
    files = {file: digest for file, digest in manifest.files.items() if file != name}
    return manifest.model_copy(update={"files": files}).to_bytes()


def replace_files(path: Path, folder: Path, **files: bytes) -> Path:
    """The archive with other files in it; an empty one is left out."""
    folder.mkdir(exist_ok=True)
    out = folder / "changed.tar.gz"
    with tarfile.open(out, "w:gz") as tar:
        for name, data in (read_files(path) | files).items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if data:
                tar.addfile(member, io.BytesIO(data))
    return out
