"""Writes quantize and dequantize nodes into a network: symmetric, zero points 0, weights by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from engine_build.feed import Array
from engine_build.matmuls import MatMul

LARGEST = 127


def quantized(model: onnx.ModelProto, matmuls: Sequence[MatMul], ranges: Mapping[str, tuple[Array, float]]) -> onnx.ModelProto:
    """The network with the chosen MatMuls in INT8; `ranges` maps each of their inputs to (smoothing, threshold)."""
    weights = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    inputs = {name: _activation(f"int8_{index}", name, *pair) for index, (name, pair) in enumerate(ranges.items())}
    chosen = {each.output: each for each in matmuls}
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    written: set[str] = set()
    for node in model.graph.node:
        matmul = chosen.get(node.output[0])
        if matmul is None:
            nodes.append(node)
            continue
        activation = inputs[matmul.activation]
        weight = _weight(matmul.output, weights[matmul.weight] * ranges[matmul.activation][0][:, None])
        for part in (weight,) if matmul.activation in written else (activation, weight):
            nodes.extend(part.nodes)
            constants.extend(part.constants)
        written.add(matmul.activation)
        nodes.append(_rewired(node, activation.output, weight.output))
    return _assembled(model, nodes, constants)


class _Part:
    """Some nodes, their constants, and the tensor they give."""

    def __init__(self, nodes: list[onnx.NodeProto], constants: dict[str, Array], output: str) -> None:
        self.nodes = nodes
        self.constants = [numpy_helper.from_array(value, name) for name, value in constants.items()]
        self.output = output


def _activation(prefix: str, tensor: str, smoothing: Array, threshold: float) -> _Part:
    names = {part: f"{prefix}_{part}" for part in ("reciprocal", "smoothed", "scale", "zero", "quantized", "dequantized")}
    constants = {
        names["reciprocal"]: (1 / smoothing).astype(np.float32),
        names["scale"]: np.array(max(threshold, 1e-12) / LARGEST, dtype=np.float32),
        names["zero"]: np.array(0, dtype=np.int8),
    }
    grid = [names["scale"], names["zero"]]
    nodes = [
        _node("Mul", [tensor, names["reciprocal"]], names["smoothed"]),
        _node("QuantizeLinear", [names["smoothed"], *grid], names["quantized"]),
        _node("DequantizeLinear", [names["quantized"], *grid], names["dequantized"]),
    ]
    return _Part(nodes, constants, names["dequantized"])


def _weight(prefix: str, weight: Array) -> _Part:
    names = {part: f"{prefix}_weight_{part}" for part in ("int8", "scale", "zero", "dequantized")}
    scale = (np.maximum(np.abs(weight).max(axis=0), 1e-12) / LARGEST).astype(np.float32)
    constants = {
        names["int8"]: np.clip(np.rint(weight / scale), -LARGEST, LARGEST).astype(np.int8),
        names["scale"]: scale,
        names["zero"]: np.zeros(weight.shape[1], dtype=np.int8),
    }
    node = _node("DequantizeLinear", list(constants), names["dequantized"], axis=1)
    return _Part([node], constants, names["dequantized"])


def _node(operator: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], name=output, **attributes)


def _rewired(node: onnx.NodeProto, activation: str, weight: str) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [activation, weight]
    return copy


def _assembled(model: onnx.ModelProto, nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto]) -> onnx.ModelProto:
    """The model with other nodes; weights that nothing reads any more are dropped."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:], result.graph.initializer[:], result.graph.value_info[:]
    result.graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input} | {output.name for output in model.graph.output}
    result.graph.initializer.extend([*(weight for weight in model.graph.initializer if weight.name in used), *constants])
    onnx.checker.check_model(result)
    return result
