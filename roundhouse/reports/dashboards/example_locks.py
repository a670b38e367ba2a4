"""Example numbers for engines that are not built, so that their dashboards have lines to show."""

from __future__ import annotations

import dataclasses

from onboarding.deployment import Deployment, Target
from onboarding.lock import ArchiveRecord, LockEntry
from onboarding.manifest import BenchmarkRecord, BuilderRecord, Manifest, ProfileRecord
from onboarding.names import engine_archive_path
from onboarding.resolve import runtime_identity
from onboarding.values import Precision

P99_MS = {1: 5.0, 8: 20.0, 32: 90.0}
"""By batch size: the example of docs/scaling.md."""
PRECISION: Precision = "int8"
SEQUENCE = 64


def with_example_locks(deployment: Deployment) -> Deployment:
    """Return the same deployment with an example's engine wherever the lock has none."""

    def example(target: Target) -> Target:
        if target.lock_entry is not None:
            return target
        return dataclasses.replace(target, lock_entry=_lock_entry(deployment, target))

    return deployment.with_targets(example)


def _lock_entry(deployment: Deployment, target: Target) -> LockEntry:
    runtime = runtime_identity(target.model, deployment.platform, target.instance_type)
    benchmark = tuple(
        BenchmarkRecord(
            runtime=runtime.name,
            precision=PRECISION,
            batch=batch,
            sequence=SEQUENCE,
            average_ms=p99_ms / 2,
            p50_ms=p99_ms / 2,
            p95_ms=p99_ms * 0.9,
            p99_ms=p99_ms,
            rows_per_second=batch * 1000 / p99_ms,
            repetitions=100,
        )
        for batch, p99_ms in P99_MS.items()
    )
    manifest = Manifest(
        model=target.model.name,
        task=target.model.task,
        engine_key=target.engine_key,
        network_keys=target.network_keys,
        platform=deployment.platform.name,
        runtime=runtime,
        compute_capability=target.instance_type.compute_capability,
        gpu=target.plan_gpu,
        requested_precision=target.model.engine.precision,
        precision=PRECISION,
        decision="an example",
        engine_file="model",
        inputs=(),
        outputs=(),
        optimization_profiles=(ProfileRecord(batch=(1, 8, 32), sequence=(8, SEQUENCE, 128)),),
        max_batch_size=32,
        files={},
        accuracy=(),
        compile_checks=(),
        benchmark=benchmark,
        load_seconds=2.5,
        host_memory_mib=200.0,
        device_memory_mib=600.0,
        builder=BuilderRecord(
            machine="example", gpu=target.instance_type.gpu, built_at="2026-11-20T09:00:00Z"
        ),
    )
    archive = ArchiveRecord(
        path=engine_archive_path(target.engine_key),
        sha256="0" * 64,
        size_bytes=90 * 2**20,
        manifest_sha256=manifest.sha256(),
    )
    return LockEntry(archive=archive, manifest=manifest)
