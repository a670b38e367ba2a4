"""Multiply-accumulates of a network's layers, for one row of some shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx

from engine_build.int8.activations import Activations
from engine_build.int8.layers import OPERATORS, node_name
from engine_build.samples.feed import Feed


def multiply_accumulates(model: onnx.ModelProto, feed: Feed) -> dict[str, int]:
    """Of every MatMul, Gemm and Conv by node, those of two activations among them."""
    nodes = [node for node in model.graph.node if node.op_type in OPERATORS]
    constants = {each.name: tuple(each.dims) for each in model.graph.initializer}
    tensors = {
        name
        for node in nodes
        for name in (node.input[0], node.input[1], node.output[0])
        if name not in constants
    }
    seen = Activations(model, dict.fromkeys(sorted(tensors), -1)).values(feed)
    shapes = constants | {name: value.shape for name, value in seen.items()}
    return {node_name(node): _work(node, shapes) for node in nodes}


def share(work: Mapping[str, int], nodes: Iterable[str]) -> float:
    """Part of all multiply-accumulates that some nodes do."""
    return sum(work[node] for node in nodes) / sum(work.values())


def _work(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Each output value is the sum of one product per weight of its channel, or per channel of the
    first input.
    """
    output = int(np.prod(shapes[node.output[0]]))
    if node.op_type == "Conv":
        return output * int(np.prod(shapes[node.input[1]][1:]))
    turned = node.op_type == "Gemm" and any(
        each.name == "transA" and each.i == 1 for each in node.attribute
    )
    return output * shapes[node.input[0]][0 if turned else -1]
