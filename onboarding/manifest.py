"""The manifest of one engine: what it is, where it may run, how it was judged.

Lies in the archive as manifest.json.
"""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import Field

from onboarding.values import (
    CalibrationMethod,
    Precision,
    QuantizationMode,
    RequestedPrecision,
    Task,
    Value,
)

MANIFEST_NAME = "manifest.json"


class RuntimeIdentity(Value):
    """The software that executes the engine: exactly this build or nothing."""

    name: Literal["tensorrt", "onnxruntime"]
    version: str


class TensorRecord(Value):
    """One input or output of the *served* model; -1 is a dynamic axis.

    Datatypes are KServe v2 names (BYTES, FP32, INT64).
    """

    name: str
    datatype: str
    shape: tuple[int, ...]


class ProfileRecord(Value):
    """(min, opt, max) of each dynamic axis of the engine."""

    batch: tuple[int, int, int]
    sequence: tuple[int, int, int] | None = None


class AccuracyRecord(Value):
    """An engine or network against the source model, on samples that calibration never saw; a score
    of 1 is the same answer.
    """

    subject: str
    metric: str
    mean: float
    mean_interval: tuple[float, float] | None = None
    """95 % bootstrap interval of the mean."""
    worst: float
    samples: int
    nearest_neighbour_agreement: float | None = None
    budget_mean: float
    budget_worst: float | None = None
    verdict: Literal["pass", "fail", "not enough data"]


class CompileCheckRecord(Value):
    """NVIDIA's parser and builder on the network, with no GPU; never the serving engine itself."""

    tool: str
    version: str
    network: str
    verdict: Literal["pass", "fail"]
    seconds: float
    reason: str | None = None


class BenchmarkRecord(Value):
    """Latency in milliseconds of one runtime and precision at one shape; rows per second in
    `rows_per_second`.
    """

    runtime: str
    precision: str
    batch: int
    sequence: int | None = None
    average_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    rows_per_second: float
    repetitions: int


class SpeedupRecord(Value):
    """How much faster one precision is than another: median of the ratios of paired rounds, with
    its 95 % interval.
    """

    candidate: str
    baseline: str
    batch: int
    sequence: int | None = None
    ratio: float
    low: float
    high: float
    control_low: float
    control_high: float
    """Where four in five rounds of the baseline against its own duplicate lie: noise."""


class RuntimeRecord(Value):
    """What it takes to hold one runtime's engine: seconds to load, memory it adds."""

    runtime: str
    precision: str
    load_seconds: float
    host_memory_mib: float
    device_memory_mib: float | None = None


class QuantizationRecord(Value):
    """How the INT8 network was made; the layers' own costs and the frontier are in the network's
    record and the engine card.
    """

    mode: QuantizationMode
    method: CalibrationMethod
    samples: int
    int8_share_of_matmul_macs: float | None = None
    """None in calibration-cache mode, where TensorRT chooses the layers."""
    share_at_sequence: int | None = None
    int8_layers: int | None = None
    float_layers: tuple[str, ...] = ()


class PlanRecord(Value):
    """A TensorRT plan as read back from its file; `int8_layers` counts layers with an INT8 tensor."""

    tensorrt: str
    layers: int
    int8_layers: int
    command: str
    timing_cache_sha256: str | None = None


class BuilderRecord(Value):
    """The machine and software that built and measured."""

    machine: str
    gpu: str | None = None
    driver: str | None = None
    image: str | None = None
    source_commit: str | None = None
    built_at: str


class Manifest(Value):
    """The whole manifest. `files` maps each path in the archive (but this one) to its sha256."""

    format_version: Literal[1] = 1
    model: str
    task: Task
    engine_key: str
    network_keys: dict[str, str]
    platform: str
    runtime: RuntimeIdentity
    compute_capability: str
    gpu: str | None = Field(None, exclude_if=lambda gpu: gpu is None)
    """GPU model that the plan runs on alone, such as A10G. None, which is not written: a CPU, or a plan
    built with a hardware compatibility level."""
    requested_precision: RequestedPrecision
    precision: Precision
    decision: str
    engine_file: str
    tokenizer_file: str | None = None
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    labels: tuple[str, ...] | None = None
    """Class names of a classifier, in the order of its logits."""
    optimization_profiles: tuple[ProfileRecord, ...]
    max_batch_size: int
    warm_up: bool = True
    """Whether a server runs every profile's sizes before it is healthy."""
    auto_truncate: bool = Field(True, exclude_if=bool)
    """Whether a text of more tokens than the engine takes is cut, instead of refused. Only False is
    written: manifests that were
    published before there was a choice keep their bytes, and a server of that time refuses those
    that it would not obey."""
    files: dict[str, str]
    accuracy: tuple[AccuracyRecord, ...]
    compile_checks: tuple[CompileCheckRecord, ...]
    benchmark: tuple[BenchmarkRecord, ...]
    speedups: tuple[SpeedupRecord, ...] = ()
    runtimes: tuple[RuntimeRecord, ...] = ()
    quantization: QuantizationRecord | None = None
    plan: PlanRecord | None = None
    load_seconds: float
    host_memory_mib: float
    device_memory_mib: float | None = None
    builder: BuilderRecord

    def to_bytes(self) -> bytes:
        """The manifest as UTF-8 JSON, keys sorted: the same manifest gives the same bytes."""
        return (json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True) + "\n").encode()

    def sha256(self) -> str:
        """Hex digest of `to_bytes`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Reads what `to_bytes` wrote. Raises pydantic.ValidationError."""
        return cls.model_validate_json(data)
