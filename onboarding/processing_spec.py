"""The specs of user-defined preprocessing and postprocessing: a Python file, and its tensors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from onboarding.values import Value

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
