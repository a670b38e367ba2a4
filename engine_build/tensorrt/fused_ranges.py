"""Bounds what a fused kernel may hold in FP16, of a network as a GPU will compile it.

A strongly typed network declares the types of its tensors; what a kernel holds between them has the
type of the node, and ONNX Runtime on a CPU never shows it. It computes FP16 nodes in FP32, and
even leaves out the casts between two of them. So the network is run in FP32, and beside each node
that computes in FP16 runs what a kernel of it may hold:

matrix product    of INT8: its sums, and its bias in units of the sums; TensorRT's fused kernels
                  convert the sums before they scale them (docs/decisions, 43)
normalisation     of root mean squares or instances: the sum, and the sum of squares
norm              the sum of squares
Softmax           the sum of the exponentials; the largest logit is taken off before
GELU by its erf   2x
Softplus, Mish    the exponential
any               its outputs

On an H100 (TensorRT 10.6) norms, GELU and Softplus behind a MatMul are infinite where those values
leave FP16; sums of LayerNormalization and ReduceMean and x^3 of GELU's tanh form are not.
Convolutions of INT8 were not measured, and are not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.datasets.dataset import Array, Feed
from engine_build.onnx_graph.external_data import bodies, load_network
from engine_build.onnx_graph.onnx_file import opset
from engine_build.quantization.layers import node_name
from engine_build.tensorrt.graph_types import tensor_types
from engine_build.tensorrt.half_precision import FULL, HALF, LARGEST, PRODUCTS

QUANTIZED = (TensorProto.INT8, TensorProto.UINT8)
PASSING = ("Cast", "Identity", "Transpose")
"""Operators that may stand between a dequantize node and its product."""
NORMALISATIONS = ("RMSNormalization", "InstanceNormalization")
BIAS = "the bias in units of the INT8 product's sums"
EXPONENTIALS = ("Softplus", "Mish", "ReduceLogSumExp")
LARGEST_EXPONENT = 80.0
"""Of an exponential that FP32 still holds."""


@dataclass(frozen=True, kw_only=True)
class HeldValue:
    """A value beyond FP16's range that a kernel may hold."""

    node: str
    """The node's name, or its first output's where it has none."""
    intermediate: str
    """What it is, such as "an INT32 sum of the INT8 product"."""
    value: float
    """The largest magnitude on the samples."""
    wide: tuple[str, ...]
    """Nodes that do not hold it in FP32: the node, or what reads a Cast."""

    def __str__(self) -> str:
        return (
            f"node {self.node}: {self.intermediate} reaches {self.value:,.0f}, and FP16 ends at "
            f"{LARGEST:,.0f}"
        )


def held_beyond_half(model: onnx.ModelProto, feeds: Iterable[Feed]) -> tuple[HeldValue, ...]:
    """Return what kernels of a network may hold beyond FP16's range, in graph order.

    `feeds` are those of the FP32 network. What is infinite or NaN in FP32 too is no fault of FP16.
    Raises NetworkRefused for a node of unknown types, SourceFault as OrtNetwork does.
    """
    probes = _Probes(model)
    names = [f"held_{index}" for index in range(len(probes.found))]
    largest = np.zeros(len(names))
    network = load_network(probes.model(names), fuses_qdq=False)
    for feed in feeds:
        values = network.values(names, feed)
        largest = np.maximum(largest, [float(values[name]) for name in names])
    readers: dict[str, list[str]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node_name(node))
    held = []
    for (node, intermediate, _), value in zip(probes.found, largest, strict=True):
        if value > LARGEST:
            is_cast = node.op_type == "Cast"
            wide = tuple(readers.get(node.output[0], ())) if is_cast else (node_name(node),)
            held.append(
                HeldValue(node=node_name(node), intermediate=intermediate, value=value, wide=wide)
            )
    return tuple(held)


class _Probes:
    """The network in FP32, with the largest magnitude of each intermediate as one more output."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._types = tensor_types(model)
        self._full = in_full_precision(model)
        self._opset = opset(model)
        self._constants = {tensor.name: tensor for tensor in self._full.graph.initializer}
        self._producers = {name: node for node in model.graph.node for name in node.output}
        self._nodes: list[onnx.NodeProto] = []
        self._added: list[onnx.TensorProto] = []
        self.found: list[tuple[onnx.NodeProto, str, str]] = [
            (node, intermediate, tensor)
            for node in model.graph.node
            for intermediate, tensor in self._intermediates(node)
        ]
        """Node, what it holds, and the tensor that is it."""

    def model(self, names: list[str]) -> onnx.ModelProto:
        """Return the network, whose outputs `names` are scalars."""
        graph = self._full.graph
        infinite, zero = self._constant(np.inf), self._constant(0.0)
        for name, (_, _, tensor) in zip(names, self.found, strict=True):
            size = self._node("Abs", tensor)
            finite = self._node("Where", self._node("Less", size, infinite), size, zero)
            self._nodes.append(helper.make_node("ReduceMax", [finite], [name], keepdims=0))
        graph.node.extend(self._nodes)
        graph.initializer.extend(self._added)
        graph.output.extend(helper.make_tensor_value_info(name, FULL, []) for name in names)
        return self._full

    def _intermediates(self, node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
        """Yield what a node may hold in FP16, each with the tensor of its values."""
        for name in node.output:
            if self._types.get(name) == HALF:
                yield "its output", name
        if not node.output or self._types.get(node.output[0]) != HALF:
            return
        yield from self._units(node)
        yield from self._reductions(node)
        yield from self._functions(node)

    def _reductions(self, node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
        """Yield the sums of normalisations, norms and of Softmax."""
        kind, y = node.op_type, node.output[0]
        if kind in NORMALISATIONS:
            yield from self._normalisation(node)
        elif kind == "ReduceL2":
            yield "the sum of squares", self._node("Mul", y, y)
        elif kind == "LpNormalization":
            squares = self._node("Mul", node.input[0], node.input[0])
            axis = _attribute(node, "axis", -1)
            yield "the sum of squares", self._reduce("ReduceSum", squares, axis)
        elif kind in ("Softmax", "LogSoftmax"):
            axis = _attribute(node, "axis", -1 if self._opset >= 13 else 1)
            share = y if kind == "Softmax" else self._node("Exp", y)
            most = self._reduce("ReduceMax", share, axis)
            yield "the sum of the exponentials", self._node("Reciprocal", most)

    def _functions(self, node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
        """Yield what activation functions compute on their way."""
        x = node.input[0] if node.input else ""
        if node.op_type == "Gelu" and _attribute(node, "approximate", b"none") == b"none":
            yield "2x of its erf", self._node("Add", x, x)
        elif node.op_type in EXPONENTIALS:
            exponent = node.output[0] if node.op_type == "ReduceLogSumExp" else x
            bounded = self._node("Min", exponent, self._constant(LARGEST_EXPONENT))
            yield "the exponential", self._node("Exp", bounded)

    def _units(self, node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
        """Yield a product's sums, or a bias, in units of the sums."""
        if (unit := self._unit(node)) is not None:
            yield "an INT32 sum of the INT8 product", self._node("Div", node.output[0], unit)
            if len(node.input) > 2:
                yield BIAS, self._node("Div", node.input[2], unit)
        elif node.op_type == "Add":
            for product, bias in (node.input, reversed(node.input)):
                source = self._producers.get(product)
                if bias in self._constants and source is not None:
                    unit = self._unit(source)
                    if unit is not None:
                        yield BIAS, self._node("Div", bias, unit)

    def _unit(self, node: onnx.NodeProto) -> str | None:
        """Return the product of both scales, by column; None for no INT8 product."""
        if node.op_type not in PRODUCTS:
            return None
        unit: Array = np.ones(1, dtype=np.float32)
        for name in node.input[:2]:
            source = self._source(name)
            if source is None or source.op_type != "DequantizeLinear":
                return None
            scale = self._constants.get(source.input[1])
            if self._types.get(source.input[0]) not in QUANTIZED or scale is None:
                return None
            unit = unit * numpy_helper.to_array(scale).reshape(-1)
        return self._array(unit.astype(np.float32))

    def _source(self, name: str) -> onnx.NodeProto | None:
        """Return the node that computes a tensor's values, behind casts and the like."""
        node = self._producers.get(name)
        while node is not None and node.op_type in PASSING:
            node = self._producers.get(node.input[0])
        return node

    def _normalisation(self, node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
        if self._types.get(node.input[0]) != HALF:
            return
        # What is normalised together, as the last axis.
        axis = 2 if node.op_type == "InstanceNormalization" else _attribute(node, "axis", -1)
        rows = self._node("Flatten", node.input[0], axis=axis)
        if node.op_type != "RMSNormalization":
            yield "the sum", self._reduce("ReduceSum", rows, -1)
            rows = self._node("Sub", rows, self._reduce("ReduceMean", rows, -1))
        squares = self._reduce("ReduceSum", self._node("Mul", rows, rows), -1)
        yield "the sum of squares", squares

    def _reduce(self, operator: str, tensor: str, axis: int) -> str:
        since = 13 if operator == "ReduceSum" else 18
        if self._opset >= since:
            axes = self._array(np.array([axis], dtype=np.int64))
            return self._node(operator, tensor, axes, keepdims=1)
        return self._node(operator, tensor, axes=[axis], keepdims=1)

    def _node(self, operator: str, *inputs: str, **attributes: object) -> str:
        output = f"probe_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def _constant(self, value: float) -> str:
        return self._array(np.array(value, dtype=np.float32))

    def _array(self, values: Array) -> str:
        name = f"probe_constant_{len(self._added)}"
        self._added.append(numpy_helper.from_array(values, name))
        return name


def in_full_precision(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the network with FP32 wherever it has FP16, under the same names."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    _widen(result.graph)
    return result


def _widen(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == HALF:
            value.type.tensor_type.elem_type = FULL
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype", "output_dtype") and attribute.i == HALF:
                attribute.i = FULL
            _widen_tensor(attribute.t)
        for inner in bodies(node):
            _widen(inner)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == HALF:
        values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _attribute(node: onnx.NodeProto, name: str, default: object) -> Any:
    values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    return values.get(name, default)
