"""Onboarding trees of many models: one YAML file, one lock and one endpoint for each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.manifest import embedder_manifest
from benchmarks.trees import MODEL, merge, read_yaml, write_yaml
from onboarding import names
from onboarding.deployment import Deployment, Target
from onboarding.lock import ArchiveRecord, Lock, LockEntry, lock_path, lock_text
from onboarding.manifest import BenchmarkRecord, BuilderRecord, ProfileRecord
from onboarding.resolve import deployments, runtime_identity
from onboarding.tree import read_tree

WIDTH = 384
PROFILE = ProfileRecord(batch=(1, 8, 32), sequence=(8, 64, 128))
SHAPES = ((1, 8, 5.0), (8, 64, 20.0), (32, 128, 90.0))
"""(batch, sequence, p99 in ms of INT8)."""
SUBJECTS = {"fp32": 3.0, "int8": 1.0, "fp32 (duplicate control)": 3.0, "int8 Q/DQ network": 2.0}
"""What was measured, and how many times slower than INT8 it was."""
ACCURACY_SUBJECTS = ("int8 Q/DQ network", "int8 engine", "fp32 engine")
RECORDS = yaml.safe_load("""
accuracy: {metric: cosine, mean: 0.998, mean_interval: [0.9979, 0.9982], worst: 0.985, samples: 640,
  nearest_neighbour_agreement: 0.94, budget_mean: 0.99, budget_worst: 0.95, verdict: pass}
compile_check: {tool: tensorrt_rtx, version: 1.7.1.116, verdict: pass, seconds: 1.33}
speedup: {candidate: int8, baseline: fp32, batch: 8, sequence: 64, ratio: 2.4, low: 2.3, high: 2.5,
  control_low: 0.98, control_high: 1.02}
runtime: {load_seconds: 0.17, host_memory_mib: 133.0, device_memory_mib: 300.0}
quantization: {mode: explicit, method: max, samples: 256, int8_share_of_matmul_macs: 0.973,
  share_at_sequence: 64, int8_layers: 36}
""")
"""What is the same in every record of a kind."""
ARCHIVE_SHA256, ARCHIVE_BYTES = "a" * 64, 90 * 2**20
Built = Callable[[Deployment, Target], LockEntry]


def measured_entry(deployment: Deployment, target: Target, **archive: Any) -> LockEntry:
    """Return a lock entry as long as a real one; `archive` is its digest and size, if it exists."""
    runtime = runtime_identity(target.model, deployment.platform, target.instance_type).name
    return lock_entry(deployment, target, **archive, **_measured_fields(target, runtime))


def lock_entry(
    deployment: Deployment,
    target: Target,
    *,
    archive_sha256: str = ARCHIVE_SHA256,
    archive_bytes: int = ARCHIVE_BYTES,
    **manifest_fields: Any,
) -> LockEntry:
    """Return the lock entry of a target, with these fields of its manifest."""
    runtime = runtime_identity(target.model, deployment.platform, target.instance_type)
    fields = {
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
        "tokenizer_file": None,
        "inputs": (),
        "outputs": (),
        "benchmark": tuple(benchmark(runtime.name, "int8", row[0], row[2]) for row in SHAPES),
        "load_seconds": 2.5,
        "host_memory_mib": 200.0,
        "builder": BuilderRecord(machine="test", built_at="2026-01-01T00:00:00Z"),
        **manifest_fields,
    }
    manifest = embedder_manifest(target.model.name, width=WIDTH, profile=PROFILE, **fields)
    archive = ArchiveRecord(
        path=names.engine_archive_path(target.engine_key),
        sha256=archive_sha256,
        size_bytes=archive_bytes,
        manifest_sha256=manifest.sha256(),
    )
    return LockEntry(archive=archive, manifest=manifest)


def _measured_fields(target: Target, runtime: str) -> dict[str, Any]:
    """Return the fields of a manifest that a build measures."""
    model = target.model.name
    embedder = embedder_manifest(model, width=WIDTH, profile=PROFILE)
    files = (embedder.engine_file, f"{model}/1/tokenizer.json", f"{model}/config.pbtxt")
    layers = tuple(f"/encoder/encoder/layer.{number}/attention/self/MatMul" for number in range(12))
    accuracy, check, run = (RECORDS[kind] for kind in ("accuracy", "compile_check", "runtime"))
    return {
        "inputs": embedder.inputs,
        "outputs": embedder.outputs,
        "files": dict.fromkeys(files, "b" * 64),
        "tokenizer_file": embedder.tokenizer_file,
        "accuracy": [{"subject": subject, **accuracy} for subject in ACCURACY_SUBJECTS],
        "compile_checks": [{"network": network, **check} for network in target.network_keys],
        "benchmark": tuple(_benchmarks(runtime)),
        "speedups": [RECORDS["speedup"]],
        "runtimes": [{"runtime": runtime, "precision": name, **run} for name in ("fp32", "int8")],
        "quantization": {**RECORDS["quantization"], "float_layers": layers},
        "device_memory_mib": 300.0,
    }


def _benchmarks(runtime: str) -> Iterator[BenchmarkRecord]:
    for batch, sequence, p99 in SHAPES:
        for precision, factor in SUBJECTS.items():
            yield benchmark(runtime, precision, batch, p99 * factor, sequence=sequence)
        yield benchmark("pytorch", "fp32", batch, p99 * 4, sequence=sequence)


def benchmark(
    runtime: str, precision: str, batch: int, p99_ms: float, *, sequence: int = 64
) -> BenchmarkRecord:
    """Return one measurement at a batch size."""
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


@dataclass(frozen=True, kw_only=True)
class ManyModels:
    """A tree of copies of the shipped model under other names, in one environment.

    `built` returns the lock entry of a target.
    """

    root: Path
    environment: str
    built: Built = measured_entry

    def change(self, name: str, changes: Mapping[str, Any]) -> None:
        """Merge changes onto one model file, and lock the engine that it now needs."""
        path = self.root / "models" / f"{name}.yaml"
        write_yaml(path, merge(read_yaml(path), dict(changes)))
        self.write_locks(name)

    def write_locks(self, *names: str) -> None:
        """Write the lock of every target of these endpoints, or of all."""
        for deployment in deployments(read_tree(self.root), self.environment, names):
            for target in deployment.targets:
                model, entry = target.model.name, self.built(deployment, target)
                path = lock_path(self.root / deployment.environment.locks, model)
                path.parent.mkdir(parents=True, exist_ok=True)
                lock = Lock(model=model, engines={target.engine_key: entry})
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
    """Write a tree of models `model-001` and on, each that of `source` with `changes`.

    `root` is emptied; the environment has every model, and an endpoint for each.
    """
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source / "models" / "data", root / "models" / "data")
    spec = merge(read_yaml(source / "models" / f"{MODEL}.yaml"), dict(changes or {}))
    for number in range(1, count + 1):
        name = f"model-{number:03d}"
        write_yaml(root / "models" / f"{name}.yaml", {**spec, "name": name})
    file = f"environments/{environment}.yaml"
    facts = read_yaml(source / file)
    left_out = ("models", "endpoints")
    write_yaml(root / file, {key: facts[key] for key in facts if key not in left_out})
    tree = ManyModels(root=root, environment=environment, built=built)
    tree.write_locks()
    return tree
