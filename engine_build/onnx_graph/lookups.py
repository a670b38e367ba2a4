"""Inputs whose values a network looks up in a table, such as the categories of an embedding."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper

from onboarding.manifest import TensorRecord

KEEP_VALUES = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose output has the values of their first input, if in another shape."""
KEEP_SHAPE = frozenset({"Cast", "DequantizeLinear", "Identity", "QuantizeLinear"})
"""Operators between a weight and its table."""


def with_table_rows(
    model: onnx.ModelProto, records: Sequence[TensorRecord]
) -> tuple[TensorRecord, ...]:
    """Return the records of a network's inputs, each with the rows of the table it is looked up in.

    Of several tables the smallest counts. An input whose columns belong to different tables, or
    whose values the network changes first, has none.
    """
    rows = table_rows(model)
    return tuple(
        record.model_copy(update={"table_rows": rows[record.name]})
        if record.name in rows
        else record
        for record in records
    )


def table_rows(model: onnx.ModelProto) -> dict[str, int]:
    """Return the rows of the smallest table of each input that reaches a Gather unchanged."""
    shapes = {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    inputs = {value.name: value.name for value in model.graph.input}
    rows: dict[str, int] = {}
    for node in model.graph.node:
        first = node.input[0] if node.input else ""
        if node.op_type == "Constant":
            for item in node.attribute:
                if item.name == "value":
                    shapes[node.output[0]] = tuple(item.t.dims)
        if node.op_type in KEEP_SHAPE and first in shapes:
            shapes[node.output[0]] = shapes[first]
        if node.op_type in KEEP_VALUES and first in inputs:
            inputs[node.output[0]] = inputs[first]
        if node.op_type == "Gather" and first in shapes and node.input[1] in inputs:
            axes = [helper.get_attribute_value(item) for item in node.attribute]
            name, size = inputs[node.input[1]], shapes[first][axes[0] if axes else 0]
            rows[name] = min(size, rows.get(name, size))
    return rows
