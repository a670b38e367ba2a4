"""The section `serving` of a model file: what answers, inside the endpoint."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from onboarding.values import BASELINE_RUNTIMES, EngineRuntime, Server, Value

Datatype = Literal[
    "BYTES", "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64",
    "FP16", "FP32", "FP64",
]  # fmt: skip
Size = Annotated[int, Field(ge=-1, le=(1 << 31) - 1)]


class ProcessedTensorSpec(Value):
    """One tensor that clients send or get."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="The name that clients use")
    datatype: Datatype = Field(description="KServe v2 datatype; texts are BYTES")
    dims: tuple[Size, ...] = Field(
        min_length=1, max_length=8, description="Sizes of one row, -1 for any; one value: [1]"
    )


class ClientTensorSpec(ProcessedTensorSpec):
    """One tensor that clients send."""

    example: JsonValue = Field(
        None,
        description="One row: a text, a number, or lists in lists as dims say. Given for every "
        "input, the build runs the code on it, and health requests send it",
    )


class ProcessingSpec(Value):
    """A Python file that packages with the engine and runs in a process of its own; Triton only."""

    file: str = Field(description="Python file under the onboarding root, such as models/code/x.py")
    sha256: str | None = Field(
        None,
        pattern=r"^[0-9a-f]{64}$",
        description="Of the file, as `sha256sum` prints it; required, `roundhouse check` shows it",
    )
    timeout_ms: Annotated[int, Field(ge=1, le=60_000)] = Field(
        1000, description="Longest that one request may take in it; then the answer is 500"
    )


class PreprocessingSpec(ProcessingSpec):
    """The file's `preprocess(inputs)` makes the model's inputs of what clients send."""

    inputs: tuple[ClientTensorSpec, ...] = Field(
        (), description="What clients send; default: what the model takes"
    )

    @property
    def example(self) -> dict[str, JsonValue] | None:
        """One row by input; None where some input has none."""
        row = {tensor.name: tensor.example for tensor in self.inputs}
        return None if not row or None in row.values() else row


class PostprocessingSpec(ProcessingSpec):
    """The file's `postprocess(outputs)` makes what clients get of the model's outputs."""

    outputs: tuple[ProcessedTensorSpec, ...] = Field(
        (), description="What clients get; default: what the model answers"
    )


LARGEST_COUNT = (1 << 31) - 1
"""Of the dimensions of TensorRT and Triton and the counts of AWS's APIs: 32 bits with a sign."""
PositiveInt = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]


class DynamicBatchingSpec(Value):
    """How the server groups requests."""

    preferred_batch_sizes: tuple[PositiveInt, ...] = Field(
        (),
        description="Batch sizes the server waits for, within max_queue_delay_us; Triton only",
    )
    max_queue_delay_us: Annotated[int, Field(ge=0, le=60_000_000)] = Field(
        0,
        description="Longest wait for a fuller batch, in microseconds; SageMaker gives an "
        "answer up after a minute; Triton only",
    )
    max_batch_size: PositiveInt | None = Field(
        None, description="Rows; default: the largest batch of the optimization profiles"
    )


class ServingSpec(Value):
    """What answers, inside the endpoint."""

    server: Server = Field(
        "triton", description="triton, or python: the small server of container/server"
    )
    runtime: EngineRuntime | None = Field(
        None,
        description="What executes the engine; default: tensorrt on a GPU, onnxruntime on a CPU. "
        "The others are baselines to compare with, in the Python server",
    )
    dynamic_batching: DynamicBatchingSpec = Field(
        DynamicBatchingSpec(), description="How requests are grouped"
    )
    instances_per_gpu: Annotated[int, Field(ge=1, le=128)] = Field(
        1,
        description="Copies of the engine that run at once on one GPU, or on a CPU instance; the "
        "Python server's batches at once, by default 2 on a GPU and one a core on a CPU",
    )
    warm_up: bool = Field(
        True, description="Run every profile's sizes once before the endpoint is healthy"
    )
    response_cache: bool = Field(
        False, description="Answer a repeated request from memory; Triton only"
    )
    auto_truncate: bool = Field(
        True,
        description="Cut texts of more tokens than the largest sequence; false: refuse their "
        "requests, naming the texts",
    )
    preprocessing: PreprocessingSpec | None = Field(
        None, description="Code of your own before the model; Triton only"
    )
    postprocessing: PostprocessingSpec | None = Field(
        None, description="Code of your own behind the model; Triton only"
    )

    @property
    def slots(self) -> int | None:
        """Batches that the Python server runs at once; None where the file leaves it the choice."""
        return self.instances_per_gpu if "instances_per_gpu" in self.model_fields_set else None

    @property
    def is_baseline(self) -> bool:
        """True for a runtime that the Python server has alone."""
        return self.runtime in BASELINE_RUNTIMES


def server_beside(serving: ServingSpec, server: Server) -> Server:
    """Return the server of a model that joins an endpoint of `server`; a baseline has its own."""
    return "python" if serving.is_baseline else server
