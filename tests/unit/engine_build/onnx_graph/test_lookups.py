"""Which inputs of a network are looked up in tables, and how many rows these have."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from engine_build.onnx_graph.onnx_file import table_rows
from tests.unit.engine_build.graphs import node, tensor, write_graph

TABLES = {"table": np.ones((4, 3)), "smaller": np.ones((3, 2)), "wide": np.ones((2, 7))}
CONSTANT = node("Constant", "", "kept", value=numpy_helper.from_array(np.ones((9, 2))))
SCALES = {"scale": np.float32(1), "eight": np.ones((6, 2), np.int8)}


@pytest.mark.parametrize(
    ("nodes", "rows"),
    [
        ([node("Gather", "table n", "y")], {"n": 4}),
        ([node("Gather", "wide n", "y", axis=1)], {"n": 7}),
        ([CONSTANT, node("Gather", "kept n", "y")], {"n": 9}),
        ([node("Cast", "n", "i", to=6), node("Gather", "table i", "y")], {"n": 4}),
        ([node("Gather", "table n", "a"), node("Gather", "smaller n", "y")], {"n": 3}),
        ([node("Gather", "table n", "a"), node("Gather", "table m", "y")], {"n": 4, "m": 4}),
        ([node("DequantizeLinear", "eight scale", "t"), node("Gather", "t n", "y")], {"n": 6}),
        # Columns may belong to tables of their own, and what is counted is no index yet.
        ([node("Gather", "n one", "c", axis=1), node("Gather", "table c", "y")], {}),
        ([node("Add", "n one", "i"), node("Gather", "table i", "y")], {}),
        ([node("Gather", "m n", "y")], {}),
    ],
)
def test_table_of_an_input_is_the_smallest_that_it_reaches_unchanged(nodes, rows, tmp_path):
    inputs = [tensor(name, "batch", 2, kind=TensorProto.INT64) for name in ("n", "m")]
    weights = {**TABLES, **SCALES, "one": np.array([1])}
    path = write_graph(tmp_path / "x.onnx", nodes, inputs, [tensor("y", "batch", 3)], **weights)
    assert table_rows(onnx.load(path)) == rows
