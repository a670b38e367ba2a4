"""Onboarding trees of many models: one YAML file, one lock and one endpoint each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.trees import MODEL, merge
from onboarding import names
from onboarding.deployment import Deployment, Target
from onboarding.lock import ArchiveRecord, Lock, LockEntry, lock_path, lock_text
from onboarding.manifest import (
    AccuracyRecord,
    BenchmarkRecord,
    BuilderRecord,
    CompileCheckRecord,
    Manifest,
    ProfileRecord,
    QuantizationRecord,
    RuntimeRecord,
    SpeedupRecord,
    TensorRecord,
)
from onboarding.resolve import deployments, runtime_identity
from onboarding.tree import read_tree

SHAPES = ((1, 8, 5.0), (8, 64, 20.0), (32, 128, 90.0))
"""(batch, sequence, p99 in ms of INT8)."""
SUBJECTS = {"fp32": 3.0, "int8": 1.0, "fp32 (duplicate control)": 3.0, "int8 Q/DQ network": 2.0}
"""What was measured, and how many times slower than INT8 it was."""


def measured_records(target: Target, runtime: str) -> dict[str, Any]:
    """Fields of the manifest.

    Tensors, files, accuracies, compile checks, benchmarks, speed-ups, runtimes, quantization.
    """
    model = target.model.name
    return {
        "inputs": (TensorRecord(name="text", datatype="BYTES", shape=(-1, 1)),),
        "outputs": (TensorRecord(name="embedding", datatype="FP32", shape=(-1, 384)),),
        "files": {
            f"{model}/{name}": "b" * 64
            for name in ("1/model.onnx", "1/tokenizer.json", "config.pbtxt")
        },
        "tokenizer_file": f"{model}/1/tokenizer.json",
        "accuracy": tuple(
            _accuracy(subject) for subject in ("int8 Q/DQ network", "int8 engine", "fp32 engine")
        ),
        "compile_checks": tuple(_compile_check(network) for network in target.network_keys),
        "benchmark": tuple(_benchmarks(runtime)),
        "speedups": (_speedup(),),
        "runtimes": tuple(_runtime(runtime, precision) for precision in ("fp32", "int8")),
        "quantization": _quantization(),
        "device_memory_mib": 300.0,
    }


def _accuracy(subject: str) -> AccuracyRecord:
    return AccuracyRecord(
        subject=subject, metric="cosine", mean=0.998, mean_interval=(0.9979, 0.9982), worst=0.985,
        samples=640,
        nearest_neighbour_agreement=0.94, budget_mean=0.99, budget_worst=0.95, verdict="pass",
    )  # fmt: skip


def _compile_check(network: str) -> CompileCheckRecord:
    return CompileCheckRecord(
        tool="tensorrt_rtx", version="1.7.1.116", network=network, verdict="pass", seconds=1.33
    )


def _benchmarks(runtime: str) -> Iterator[BenchmarkRecord]:
    for batch, sequence, p99 in SHAPES:
        for precision, factor in SUBJECTS.items():
            yield benchmark(runtime, precision, batch, p99 * factor, sequence=sequence)
        yield benchmark("pytorch", "fp32", batch, p99 * 4, sequence=sequence)


def _speedup() -> SpeedupRecord:
    return SpeedupRecord(
        candidate="int8",
        baseline="fp32",
        batch=8,
        sequence=64,
        ratio=2.4,
        low=2.3,
        high=2.5,
        control_low=0.98,
        control_high=1.02,
    )


def _runtime(runtime: str, precision: str) -> RuntimeRecord:
    return RuntimeRecord(
        runtime=runtime,
        precision=precision,
        load_seconds=0.17,
        host_memory_mib=133.0,
        device_memory_mib=300.0,
    )


def _quantization() -> QuantizationRecord:
    layers = tuple(f"/encoder/encoder/layer.{number}/attention/self/MatMul" for number in range(12))
    return QuantizationRecord(
        mode="explicit", method="max", samples=256, int8_share_of_matmul_macs=0.973,
        share_at_sequence=64, int8_layers=36,
        float_layers=layers,
    )  # fmt: skip


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


Built = Callable[[Deployment, Target], LockEntry]


def measured_entry(deployment: Deployment, target: Target, **archive: Any) -> LockEntry:
    """Return a lock entry as long as a real one; `archive` is its digest and size, if it exists."""
    runtime = runtime_identity(deployment.platform, target.instance_type).name
    return lock_entry(deployment, target, **archive, **measured_records(target, runtime))


@dataclass(frozen=True, kw_only=True)
class ManyModels:
    """A tree of copies of the shipped model under other names, in one environment.

    `built` writes what their locks say.
    """

    root: Path
    environment: str
    built: Built = measured_entry

    def change(self, name: str, changes: Mapping[str, Any]) -> None:
        """Merges changes onto one model file, and locks the engine that it now needs."""
        path = self.root / "models" / f"{name}.yaml"
        spec = merge(yaml.safe_load(path.read_text(encoding="utf-8")), dict(changes))
        path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
        self.write_locks(name)

    def write_locks(self, *names: str) -> None:
        """Writes the lock of every target of these endpoints, or of all."""
        for deployment in deployments(read_tree(self.root), self.environment, names):
            for target in deployment.targets:
                lock = Lock(
                    model=target.model.name,
                    engines={target.engine_key: self.built(deployment, target)},
                )
                path = lock_path(self.root / deployment.environment.locks, target.model.name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(lock_text(lock), encoding="utf-8")


def many_models(
    source: Path,
    root: Path,
    count: int,
    *,
    environment: str,
    changes: Mapping[str, Any] | None = None,
    built: Built = measured_entry,
) -> ManyModels:
    """Writes such a tree into an empty folder.

    The model of `source` with `changes`, its datasets, an environment.
    """
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source / "models" / "data", root / "models" / "data")
    spec = merge(
        yaml.safe_load((source / "models" / f"{MODEL}.yaml").read_text(encoding="utf-8")),
        dict(changes or {}),
    )
    for name in model_names(count):
        (root / "models" / f"{name}.yaml").write_text(
            yaml.safe_dump({**spec, "name": name}, sort_keys=False), encoding="utf-8"
        )
    facts = yaml.safe_load(
        (source / "environments" / f"{environment}.yaml").read_text(encoding="utf-8")
    )
    kept = {key: value for key, value in facts.items() if key not in ("models", "endpoints")}
    (root / "environments").mkdir()
    (root / "environments" / f"{environment}.yaml").write_text(
        yaml.safe_dump(kept, sort_keys=False), encoding="utf-8"
    )
    tree = ManyModels(root=root, environment=environment, built=built)
    tree.write_locks()
    return tree


def model_names(count: int) -> Iterator[str]:
    """model-001 and on."""
    return (f"model-{number:03d}" for number in range(1, count + 1))
