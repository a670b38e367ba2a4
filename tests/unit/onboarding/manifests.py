"""A small manifest and lock entry for tests."""

from __future__ import annotations

from onboarding.lock import ArchiveRecord, LockEntry
from onboarding.manifest import BuilderRecord, Manifest, RuntimeIdentity, TensorRecord


def lock_entry(model: str, engine_key: str) -> LockEntry:
    """A lock entry of a model, as a build on a CPU might leave it."""
    manifest = Manifest(
        model=model,
        task="tensors",
        engine_key=engine_key,
        network_keys={"float": "f" * 20},
        platform="triton-24.10-cpu",
        runtime=RuntimeIdentity(name="onnxruntime", version="1.31.1"),
        compute_capability="cpu",
        requested_precision="fp32",
        precision="fp32",
        decision="fp32 was asked for",
        engine_file="model.onnx",
        inputs=(TensorRecord(name="x", datatype="FP32", shape=(-1, 4)),),
        outputs=(TensorRecord(name="y", datatype="FP32", shape=(-1, 2)),),
        optimization_profiles=(),
        max_batch_size=8,
        files={"model.onnx": "0" * 64},
        accuracy=(),
        compile_checks=(),
        benchmark=(),
        load_seconds=0.5,
        host_memory_mib=100.0,
        builder=BuilderRecord(machine="test", built_at="2026-11-20T00:00:00Z"),
    )
    archive = ArchiveRecord(
        path=f"engines/{engine_key}/model.tar.gz",
        sha256="1" * 64,
        size_bytes=1,
        manifest_sha256=manifest.sha256(),
    )
    return LockEntry(archive=archive, manifest=manifest)
