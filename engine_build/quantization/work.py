"""Multiply-accumulates of a node: one product for each pair of values that is summed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

Sizes = tuple[int, ...]
COUNTED = (
    *("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "LSTM", "GRU", "RNN"),
    *("FusedMatMul", "FusedGemm", "FusedConv"),
)
"""Operators whose multiply-accumulates follow from the shapes of what they read and give."""
NOT_COUNTED = (
    "DeformConv",
    "Attention",
    "MultiHeadAttention",
    "MatMulNBits",
    "Loop",
    "If",
    "Scan",
)
"""Operators that multiply and accumulate too, or hold operators that do."""
RECURRENT = ("LSTM", "GRU", "RNN")


def tensors_of(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the tensors whose shapes decide a node's work."""
    if node.op_type == "Einsum":
        return tuple(node.input)
    if node.op_type in RECURRENT:
        return tuple(node.input[:3])
    return (*node.input[:2], node.output[0])


def node_work(node: onnx.NodeProto, shapes: Mapping[str, Sizes]) -> int:
    """Return the multiply-accumulates of a counted node; `shapes` has all of `tensors_of`."""
    first, second = (shapes[name] for name in node.input[:2]) if len(node.input) > 1 else ((), ())
    if node.op_type == "Einsum":
        return _einsum(node, shapes)
    if node.op_type in RECURRENT:
        # [sequence, batch, …], and the weights of inputs and of hidden states.
        return first[0] * first[1] * (_product(second) + _product(shapes[node.input[2]]))
    if node.op_type == "ConvTranspose":
        return _product(first) * _product(second[1:])
    output = _product(shapes[node.output[0]])
    if node.op_type in ("Conv", "FusedConv"):
        return output * _product(second[1:])
    transposed = any(item.name == "transA" and item.i == 1 for item in node.attribute)
    return output * first[-2 if transposed else -1]


def _einsum(node: onnx.NodeProto, shapes: Mapping[str, Sizes]) -> int:
    """Count all combinations of its letters, once for each product of two operands."""
    equation = next(
        helper.get_attribute_value(item) for item in node.attribute if item.name == "equation"
    )
    terms = equation.decode().replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, name in zip(terms, node.input, strict=True):
        before, dots, after = term.partition("...")
        shape = shapes[name]
        last = len(shape) - len(after)
        sizes |= zip(before, shape, strict=False)
        sizes |= zip(after, shape[last:], strict=False)
        if dots:
            # Counted from the right, as they broadcast.
            for place, size in enumerate(reversed(shape[len(before) : last])):
                sizes[f".{place}"] = max(size, sizes.get(f".{place}", 1))
    return _product(tuple(sizes.values())) * max(1, len(terms) - 1)


def _product(sizes: Sizes) -> int:
    return int(np.prod(sizes, dtype=np.int64))
