"""What the manifest of a measured build records, so that a generated lock is as long as a real one:
about 300 lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.scale.lock_entries import benchmark
from onboarding.deployment import Target
from onboarding.manifest import (
    AccuracyRecord,
    BenchmarkRecord,
    CompileCheckRecord,
    QuantizationRecord,
    RuntimeRecord,
    SpeedupRecord,
    TensorRecord,
)

SHAPES = ((1, 8, 5.0), (8, 64, 20.0), (32, 128, 90.0))
"""(batch, sequence, p99 in ms of INT8)."""
SUBJECTS = {"fp32": 3.0, "int8": 1.0, "fp32 (duplicate control)": 3.0, "int8 Q/DQ network": 2.0}
"""What was measured, and how many times slower than INT8 it was."""


def measured_records(target: Target, runtime: str) -> dict[str, Any]:
    """Fields of the manifest: tensors, files, accuracies, compile checks, benchmarks, speed-ups,
    runtimes, quantization.
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
        subject=subject, metric="cosine", mean=0.998, mean_interval=(0.9979, 0.9982), worst=0.985, samples=640,
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
        mode="explicit", method="max", samples=256, int8_share_of_matmul_macs=0.973, share_at_sequence=64, int8_layers=36,
        float_layers=layers,
    )  # fmt: skip
