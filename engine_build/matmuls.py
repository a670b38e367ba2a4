"""The matrix multiplications of a network, told apart by the graph alone: no node names, no architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

ACTIVATIONS = {"Erf", "Gelu", "FastGelu", "Relu", "LeakyRelu", "Tanh", "Sigmoid", "Elu", "HardSwish", "HardSigmoid", "Softplus"}
ELEMENTWISE = {"Add", "Sub", "Mul", "Div", "Pow", "Cast", "Identity", "Dropout"}


@dataclass(frozen=True, kw_only=True)
class MatMul:
    """One multiplication by a constant [rows, columns] matrix."""

    node: str
    activation: str
    """The tensor that is multiplied."""
    weight: str
    output: str
    follows_activation_function: bool
    """Its input is what a GELU, ReLU … gave: outliers live there, and INT8 costs most of the accuracy."""


def weighted_matmuls(model: onnx.ModelProto) -> tuple[MatMul, ...]:
    """Every multiplication by a constant matrix, in graph order."""
    matrices = {weight.name for weight in model.graph.initializer if len(weight.dims) == 2}
    producers = {output: node for node in model.graph.node for output in node.output}
    return tuple(
        MatMul(
            node=node.name or node.output[0],
            activation=node.input[0],
            weight=node.input[1],
            output=node.output[0],
            follows_activation_function=_follows_activation_function(node.input[0], producers),
        )
        for node in model.graph.node
        if node.op_type == "MatMul" and node.input[1] in matrices and node.input[0] not in matrices
    )


def matmul_tensors(model: onnx.ModelProto) -> dict[str, tuple[str, str]]:
    """(first input, output) of every MatMul by node, activation x activation ones among them."""
    return {node.name or node.output[0]: (node.input[0], node.output[0]) for node in model.graph.node if node.op_type == "MatMul"}


def _follows_activation_function(tensor: str, producers: Mapping[str, onnx.NodeProto]) -> bool:
    """Walks back through element-wise operators only, so a multiplication or a normalisation between ends the search."""
    waiting, seen = [tensor], set()
    while waiting:
        name = waiting.pop()
        node = producers.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        if node.op_type in ACTIVATIONS:
            return True
        if node.op_type in ELEMENTWISE:
            waiting.extend(node.input)
    return False
