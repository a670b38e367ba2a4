"""The manifest of one engine: what it is, where it may run, how accurate and fast it is.

Lies in the archive as manifest.json.
"""

from __future__ import annotations

import hashlib
import json
from typing import Literal, Self

from pydantic import Field, JsonValue

from onboarding.signature import MANIFEST_NAME as MANIFEST_NAME
from onboarding.values import (
    NOT_MEASURED,
    Activation,
    CalibrationMethod,
    Precision,
    QuantizationMode,
    RequestedPrecision,
    Runtime,
    ServedPrecision,
    Task,
    Value,
)


class RuntimeIdentity(Value):
    """The software that executes the engine: exactly this build or nothing."""

    name: Runtime
    version: str


class TensorRecord(Value):
    """One input or output of the *served* model; -1 is a dynamic axis.

    Datatypes are KServe v2 names (BYTES, FP32, INT64).
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    table_rows: int | None = Field(None, exclude_if=lambda rows: rows is None)
    """Rows of the table in which the network looks the values up, which are from -rows to rows - 1;
    None, not written, where it looks none up, or the table's size is not known."""


class Prompts(Value):
    """Prefixes of texts by name, as sentence-transformers' `encode(prompt_name=)` knows them."""

    texts: dict[str, str]
    default_prompt_name: str | None = None
    """The prompt of requests that name none; None: their texts stay as they are."""

    def prefix(self, name: str | None = None) -> str:
        """Return what is put before a text. Raises KeyError for a name that there is not."""
        known = self.default_prompt_name if name is None else name
        return "" if known is None else self.texts[known]

    @property
    def differ(self) -> bool:
        """True when a request's prompt can change its answer."""
        return len({self.prefix(), *self.texts.values()}) > 1


class ProcessingRecord(Value):
    """A user's preprocessing or postprocessing: the Python file, and the tensors around it."""

    file: str
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    timeout_ms: int
    example: dict[str, JsonValue] | None = Field(None, exclude_if=lambda example: example is None)
    """One row that clients may send, by input; None, not written, where the file gives none."""


class StepRecord(Value):
    """A model of an ensemble: its engine, and the path of the manifest it was published with."""

    engine_key: str
    manifest: str


class EnsembleRecord(Value):
    """The models of an ensemble by name."""

    steps: dict[str, StepRecord]
    bls: None = None
    """Written as null: the digests of manifests in locks hold it."""
    images: tuple[str, ...] = ()
    """Inputs that take image files."""
    example: dict[str, JsonValue] | None = None
    """One row that clients may send, by input; None where the file gives none."""


class Normalization(Value):
    """Subtract a mean and divide by a standard deviation, one of each channel."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class ImageProcessor(Value):
    """How pixels become the network's input; read once of the checkpoint's own processor.

    The steps run in the order of the fields; sizes are (height, width) in pixels.
    """

    resize: tuple[int, int] | None = None
    """None: the shortest edge decides, or the size stays as it is."""
    shortest_edge: int | None = None
    """Pixels of the shorter edge once resized; the other follows, rounded down."""
    resample: Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"] = "bilinear"
    """Pillow's name of the filter of the resizing."""
    crop: tuple[int, int] | None = None
    """Of the centre; a smaller image is filled up with zeros."""
    channels: Literal["rgb", "bgr"] = "rgb"
    rescale_factor: float | None = None
    rescale_offset: float = 0.0
    """Added after the factor."""
    normalizations: tuple[Normalization, ...] = ()
    input: TensorRecord
    """The network's own: float32 [-1, 3, height, width]."""
    output: TensorRecord
    """The network's own: logits."""


class ProfileRecord(Value):
    """(min, opt, max) of each dynamic axis of the engine."""

    batch: tuple[int, int, int]
    sequence: tuple[int, int, int] | None = None


class AccuracyRecord(Value):
    """Accuracy against the source model on samples that calibration never saw; 1 is equal."""

    subject: str
    metric: str
    mean: float
    mean_interval: tuple[float, float] | None = None
    """95 % bootstrap interval of the mean."""
    worst: float
    samples: int
    nearest_neighbour_agreement: float | None = None
    nearest_neighbour_interval: tuple[float, float] | None = None
    """95 % bootstrap interval of the agreement."""
    budget_mean: float
    budget_worst: float | None = None
    budget_neighbours: float | None = None
    verdict: Literal["pass", "fail", "not enough data"]


class CompiledLayersRecord(Value):
    """The layers that a compile check's builder made of a network, on no GPU in particular."""

    layers: int
    products: int
    """Those that multiply by weights, several of the network's in one among them."""
    int8_products: int
    reformats: int
    """Those that only write a tensor in another format."""
    activation_mib: float
    """Memory of all activations at the profiles' largest sizes."""


class CompileCheckRecord(Value):
    """NVIDIA's parser and builder on the network, with no GPU; never the serving engine itself."""

    tool: str
    version: str
    network: str
    verdict: Literal["pass", "fail"]
    seconds: float
    reason: str | None = None
    layers: CompiledLayersRecord | None = None


class BenchmarkRecord(Value):
    """Latency in milliseconds and rows per second of one runtime and precision at one shape."""

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
    """Speed of one precision against another: median ratio of paired rounds, 95 % interval."""

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
    engine_bytes: int | None = Field(None, exclude_if=lambda size: size is None)
    weights_bytes: int | None = Field(None, exclude_if=lambda size: size is None)
    """Of the engine's files, of a network's weights; None, not written: a plan's are not known."""


class QuantizationRecord(Value):
    """How eight bits were made; fields named int8 are of FP8 where `precision` says so.

    Mode source: by the source network's Q/DQ nodes. Mode dynamic: ranges of each batch.
    """

    mode: QuantizationMode | Literal["source", "dynamic"]
    precision: Literal["int8", "fp8"] = Field("int8", exclude_if=lambda kind: kind == "int8")
    method: CalibrationMethod | None = None
    samples: int | None = None
    int8_share_of_matmul_macs: float | None = None
    """None in calibration-cache mode, where TensorRT chooses the layers."""
    share_at_sequence: int | None = None
    int8_layers: int | None = None
    float_layers: tuple[str, ...] = ()


class PlanRecord(Value):
    """A TensorRT plan as read back; `int8_layers` counts layers with an INT8 tensor."""

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
    seconds: float | None = Field(None, exclude_if=lambda seconds: seconds is None)
    """Of the whole build up to the archive; None, not written, where it was not timed."""


class RepackagingRecord(Value):
    """Where a plan came from that was not compiled for this archive, and who packaged it anew."""

    engine_key: str
    """The engine whose archive the plan was taken of."""
    archive_sha256: str
    builder: BuilderRecord
    """Of the packaging; the manifest's own compiled and measured the plan."""


class ServedModel(Value):
    """What servers read of an archive; `files` maps each path (but the manifest) to its sha256."""

    model: str
    task: Task
    platform: str
    runtime: RuntimeIdentity
    compute_capability: str
    tokenizer_file: str | None = None
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    labels: tuple[str, ...] | None = None
    """Class names of a classifier, in the order of its logits."""
    activation: Activation | None = Field(None, exclude_if=lambda activation: activation is None)
    """What makes scores of logits; None, not written: no head, or an older classifier's logits."""
    optimization_profiles: tuple[ProfileRecord, ...]
    max_batch_size: int
    warm_up: bool = True
    """Whether a server runs every profile's sizes before it is healthy."""
    auto_truncate: bool = Field(True, exclude_if=bool)
    """Whether a text of more tokens than the engine takes is cut, instead of refused. Only False is
    written: older manifests keep their bytes, and an older server refuses what it cannot obey."""
    prompts: Prompts | None = Field(None, exclude_if=lambda prompts: prompts is None)
    """Prefixes that a request may name; None, not written, where there are none."""
    preprocessing: ProcessingRecord | None = Field(None, exclude_if=lambda record: record is None)
    postprocessing: ProcessingRecord | None = Field(None, exclude_if=lambda record: record is None)
    """Code around the model, whose own tensors are then `inputs` or `outputs`; else not written."""
    ensemble: EnsembleRecord | None = Field(None, exclude_if=lambda record: record is None)
    """The models of `task: ensemble`; None, not written, of one network."""
    image_processor: ImageProcessor | None = Field(
        None, exclude_if=lambda processor: processor is None
    )
    """What makes pixels the network's input; None, not written, unless clients send images."""
    plugins: tuple[str, ...] = Field((), exclude_if=lambda plugins: not plugins)
    """Files that are libraries of the plan's custom operators; not written where there are none."""
    files: dict[str, str]

    def to_bytes(self) -> bytes:
        """Return the manifest as UTF-8 JSON, keys sorted: equal manifests give equal bytes."""
        return (json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True) + "\n").encode()

    def sha256(self) -> str:
        """Return the hex digest of `to_bytes`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote. Raises pydantic.ValidationError."""
        return cls.model_validate_json(data)


class Manifest(ServedModel):
    """The manifest of an archive with one engine."""

    format_version: Literal[1] = 1
    engine_key: str
    network_keys: dict[str, str]
    gpu: str | None = Field(None, exclude_if=lambda gpu: gpu is None)
    """GPU model that a plan runs on alone, such as A10G; None, not written, of other engines."""
    requested_precision: RequestedPrecision
    precision: ServedPrecision
    decision: str
    engine_file: str
    """Of an ensemble, or of a repository of the user's own, its own model configuration."""
    opset: int | None = Field(None, exclude_if=lambda opset: opset is None)
    """Of the export, where the model file asks for another than the default; else not written."""
    accuracy: tuple[AccuracyRecord, ...] | Literal["not measured"]
    """Not measured: of a repository of the user's own."""
    reference: str | None = Field(None, exclude_if=lambda reference: reference is None)
    """What accuracy is against, where that is not the source model in float."""
    compile_checks: tuple[CompileCheckRecord, ...]
    benchmark: tuple[BenchmarkRecord, ...]
    speedups: tuple[SpeedupRecord, ...] = ()
    runtimes: tuple[RuntimeRecord, ...] = ()
    left_out: dict[Precision, str] = Field({}, exclude_if=lambda reasons: not reasons)
    """Why a precision has no engine, or no sound one; empty, not written, in older manifests."""
    quantization: QuantizationRecord | None = None
    plan: PlanRecord | None = None
    load_seconds: float
    host_memory_mib: float
    device_memory_mib: float | None = None
    builder: BuilderRecord
    """Of what compiled and measured the plan, for this archive or another."""

    @property
    def accuracy_records(self) -> tuple[AccuracyRecord, ...]:
        """What was measured; nothing of a repository of the user's own."""
        return () if self.accuracy == NOT_MEASURED else self.accuracy
