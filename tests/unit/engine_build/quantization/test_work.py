"""Multiply-accumulates, counted by hand."""

from __future__ import annotations

import onnx
import pytest

from engine_build.quantization.layers import COUNTED, NOT_COUNTED, node_work, tensors_of
from tests.unit.engine_build.graphs import node

X, W, R = (2, 3, 8), (1, 16, 8), (1, 16, 4)
"""Of an LSTM: two steps of three rows of 8, hidden states of 4."""


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes", "work"),
    [
        ("MatMul", {"a": (2, 5, 8), "b": (8, 3), "y": (2, 5, 3)}, {}, 2 * 5 * 3 * 8),
        ("Gemm", {"a": (8, 5), "b": (8, 3), "y": (5, 3)}, {"transA": 1}, 5 * 3 * 8),
        ("FusedMatMul", {"a": (2, 8, 5), "b": (8, 3), "y": (2, 5, 3)}, {"transA": 1}, 240),
        ("Conv", {"a": (1, 4, 9, 9), "b": (6, 2, 3, 3), "y": (1, 6, 7, 7)}, {}, 6 * 49 * 18),
        ("ConvTranspose", {"a": (1, 4, 5, 5), "b": (4, 6, 2, 2), "y": (1,)}, {}, 100 * 24),
        ("Einsum", {"a": (2, 5, 8), "b": (2, 8, 3)}, {"equation": "bij,bjk->bik"}, 240),
        ("Einsum", {"a": (7, 5, 8), "b": (8, 3)}, {"equation": "...ij,jk->...ik"}, 7 * 5 * 8 * 3),
        ("LSTM", {"a": X, "b": W, "c": R}, {"hidden_size": 4}, 2 * 3 * (16 * 8 + 16 * 4)),
        ("GRU", {"a": X, "b": (1, 12, 8), "c": (1, 12, 4)}, {"hidden_size": 4}, 6 * (96 + 48)),
    ],
)
def test_work_is_that_of_every_product(operator, shapes, attributes, work):
    inputs = " ".join(name for name in shapes if name != "y")
    made = node(operator, inputs, "y", **attributes)
    assert set(tensors_of(made)) <= set(shapes)
    assert node_work(made, shapes) == work


def test_an_operator_is_counted_or_named_as_not_counted():
    assert not set(COUNTED) & set(NOT_COUNTED)
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    own = {"FusedMatMul", "FusedGemm", "FusedConv", "MultiHeadAttention", "MatMulNBits"}
    assert {*COUNTED, *NOT_COUNTED} - own <= known
