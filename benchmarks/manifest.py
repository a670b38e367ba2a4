"""Manifests of text embedders that were never built."""

from __future__ import annotations

from typing import Any

from onboarding.manifest import (
    BuilderRecord,
    Manifest,
    ProfileRecord,
    RuntimeIdentity,
    TensorRecord,
)


def embedder_manifest(model: str, *, width: int, profile: ProfileRecord, **fields: Any) -> Manifest:
    """Return the manifest of an FP32 network on the CPU; `fields` replace its own."""
    defaults = {
        "model": model,
        "task": "text-embedding",
        "engine_key": "0" * 20,
        "network_keys": {},
        "platform": "none",
        "runtime": RuntimeIdentity(name="onnxruntime", version="0"),
        "compute_capability": "cpu",
        "requested_precision": "fp32",
        "precision": "fp32",
        "decision": "for measuring",
        "engine_file": f"{model}/1/model.onnx",
        "tokenizer_file": f"{model}/1/tokenizer.json",
        "inputs": (TensorRecord(name="text", datatype="BYTES", shape=(-1, 1)),),
        "outputs": (TensorRecord(name="embedding", datatype="FP32", shape=(-1, width)),),
        "optimization_profiles": (profile,),
        "max_batch_size": profile.batch[2],
        "files": {},
        "accuracy": (),
        "compile_checks": (),
        "benchmark": (),
        "load_seconds": 0.0,
        "host_memory_mib": 0.0,
        "builder": BuilderRecord(machine="x86_64", built_at="2026-01-01T00:00:00Z"),
    }
    return Manifest.model_validate({**defaults, **fields}, strict=False)
