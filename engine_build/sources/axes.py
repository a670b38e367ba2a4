"""Axes of a network's inputs and outputs: the batch, one sequence, and nothing else dynamic."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from engine_build.errors import SourceFault
from engine_build.onnx_graph.onnx_file import tensor_records


def refuse_axes(
    name: str,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    *,
    has_sequence: bool,
) -> None:
    """Refuse axes beside the batch, axis 0, and of inputs the sequence, axis 1, that have no size.

    Raises SourceFault.
    """
    if has_sequence and not any(record.shape[1:2] == (-1,) for record in tensor_records(inputs)):
        raise SourceFault(
            f"{name}: no input is dynamic in axis 1, but the optimization profiles have a "
            "sequence; remove `sequence` from the model file, or export axis 1 without a size."
        )
    for kind, values in (("input", inputs), ("output", outputs)):
        for record in tensor_records(values):
            if record.shape[:1] != (-1,):
                raise SourceFault(
                    f"{name}: {kind} {record.name!r} has no batch axis (its shape is "
                    f"{list(record.shape)}); export it with a dynamic first axis."
                )
    for value in inputs:
        dynamic = [
            f"axis {axis} ({dim.dim_param or 'no name'})"
            for axis, dim in enumerate(value.type.tensor_type.shape.dim)
            if axis > int(has_sequence) and not dim.HasField("dim_value")
        ]
        if dynamic:
            allowed = "the batch and, as axis 1, the sequence" if has_sequence else "the batch"
            raise SourceFault(
                f"{name}: input {value.name!r} is dynamic in {', '.join(dynamic)}; an engine's "
                f"dynamic axes are {allowed}: export the others with a fixed size."
            )
