"""Lock entries as a build would have written them, of engines that nobody built."""

from __future__ import annotations

from typing import Any

from onboarding import names
from onboarding.deployment import Deployment, Target
from onboarding.lock import ArchiveRecord, LockEntry
from onboarding.manifest import BenchmarkRecord, BuilderRecord, Manifest, ProfileRecord
from onboarding.resolve import runtime_identity

ARCHIVE_SHA256, ARCHIVE_BYTES = "a" * 64, 90 * 2**20


def lock_entry(
    deployment: Deployment,
    target: Target,
    *,
    archive_sha256: str = ARCHIVE_SHA256,
    archive_bytes: int = ARCHIVE_BYTES,
    **manifest_fields: Any,
) -> LockEntry:
    """The lock entry of a target, with these fields of its manifest."""
    runtime = runtime_identity(deployment.platform, target.instance_type)
    fields: dict[str, Any] = {
        "model": target.model.name,
        "task": target.model.task,
        "engine_key": target.engine_key,
        "network_keys": target.network_keys,
        "platform": deployment.platform.name,
        "runtime": runtime,
        "compute_capability": target.instance_type.compute_capability,
        "gpu": target.plan_gpu,
        "requested_precision": target.model.engine.precision,
        "precision": "int8",
        "decision": "int8 is faster and within the budget",
        "engine_file": f"{target.model.name}/1/model.onnx",
        "inputs": (),
        "outputs": (),
        "optimization_profiles": (ProfileRecord(batch=(1, 8, 32), sequence=(8, 64, 128)),),
        "max_batch_size": 32,
        "files": {},
        "accuracy": (),
        "compile_checks": (),
        "benchmark": tuple(
            benchmark(runtime.name, "int8", batch, p99)
            for batch, p99 in ((1, 5.0), (8, 20.0), (32, 90.0))
        ),
        "load_seconds": 2.5,
        "host_memory_mib": 200.0,
        "builder": BuilderRecord(machine="test", built_at="2026-01-01T00:00:00Z"),
    }
    manifest = Manifest(**{**fields, **manifest_fields})
    archive = ArchiveRecord(
        path=names.engine_archive_path(target.engine_key),
        sha256=archive_sha256,
        size_bytes=archive_bytes,
        manifest_sha256=manifest.sha256(),
    )
    return LockEntry(archive=archive, manifest=manifest)


def benchmark(
    runtime: str, precision: str, batch: int, p99_ms: float, *, sequence: int = 64
) -> BenchmarkRecord:
    """One measurement at a batch size."""
    return BenchmarkRecord(
        runtime=runtime,
        precision=precision,
        batch=batch,
        sequence=sequence,
        average_ms=p99_ms / 2,
        p50_ms=p99_ms / 2,
        p95_ms=p99_ms,
        p99_ms=p99_ms,
        rows_per_second=batch * 1000 / p99_ms,
        repetitions=100,
    )
