"""Writes quantize and dequantize nodes into a network: symmetric, zero points 0, weights by output
channel.

Scales are float32 initializers named `int8_*_scale` (activations, []) and `*_weight_scale`
(weights, [output channels]), so that
whoever casts the rest of the network to FP16 finds them and what lies between a quantize and its
dequantize stays as it is.
Smoothing is one Mul by the float32 initializer `int8_*_reciprocal` before the quantize node: behind
a post-norm residual it
cannot go into the normalisation. Weights stand as int8 with a dequantize node alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from engine_build.errors import SourceFault
from engine_build.int8 import grid
from engine_build.int8.calibration import Range
from engine_build.int8.layers import Constants, Layer
from engine_build.samples.feed import Array

LEAST_OPSET = 13
"""The first with scales by channel."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some nodes, their constants, and the tensor they give."""

    nodes: tuple[onnx.NodeProto, ...]
    constants: tuple[onnx.TensorProto, ...]
    output: str


@dataclass(kw_only=True)
class Draft:
    """A network in the making."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def add(self, part: Part) -> None:
        """Nodes in order, and what they need."""
        self.nodes.extend(part.nodes)
        self.constants.extend(part.constants)


def quantized(
    model: onnx.ModelProto, layers: Sequence[Layer], ranges: Mapping[str, Range]
) -> onnx.ModelProto:
    """The network with some layers in INT8; `ranges` by activation.

    Layers that share an activation quantize it once.
    """
    refuse_old_opset(model)
    constants, chosen = Constants(model), {layer.output: layer for layer in layers}
    activations = {
        name: activation_part(f"int8_{index}", name, each)
        for index, (name, each) in enumerate(ranges.items())
    }
    draft, written = Draft(), set[str]()
    for node in model.graph.node:
        layer = chosen.get(node.output[0]) if node.output else None
        if layer is None:
            draft.nodes.append(node)
            continue
        activation = activations[layer.activation]
        weight = weight_part(layer, constants.array(layer.weight), ranges[layer.activation])
        for part in (weight,) if layer.activation in written else (activation, weight):
            draft.add(part)
        written.add(layer.activation)
        draft.nodes.append(rewired(node, activation.output, weight.output))
    return assembled(model, draft.nodes, draft.constants)


def activation_part(prefix: str, tensor: str, wanted: Range) -> Part:
    """Mul, where the activation is smoothed; QuantizeLinear; DequantizeLinear."""
    step, zero = f"{prefix}_scale", f"{prefix}_zero"
    constants: dict[str, Array] = {
        step: grid.scale(wanted.threshold),
        zero: np.array(0, dtype=np.int8),
    }
    nodes: list[onnx.NodeProto] = []
    if wanted.smoothing is not None:
        constants[f"{prefix}_reciprocal"] = (1 / wanted.smoothing.scales).astype(np.float32)
        nodes.append(_node("Mul", [tensor, f"{prefix}_reciprocal"], f"{prefix}_smoothed"))
        tensor = f"{prefix}_smoothed"
    nodes.append(_node("QuantizeLinear", [tensor, step, zero], f"{prefix}_quantized"))
    nodes.append(
        _node("DequantizeLinear", [f"{prefix}_quantized", step, zero], f"{prefix}_dequantized")
    )
    return _part(nodes, constants, f"{prefix}_dequantized")


def weight_part(layer: Layer, weight: Array, wanted: Range) -> Part:
    """The weight, its rows multiplied by what the activation is divided by, as int8 and
    DequantizeLinear.
    """
    prefix, axis = f"{layer.output}_weight", layer.column_axis
    if wanted.smoothing is not None:
        weight = weight * grid.along(wanted.smoothing.scales, weight.ndim, 1 - axis)
    steps = grid.column_scales(weight, axis)
    constants: dict[str, Array] = {
        f"{prefix}_int8": grid.quantized(weight, grid.along(steps, weight.ndim, axis)),
        f"{prefix}_scale": steps,
        f"{prefix}_zero": np.zeros(len(steps), dtype=np.int8),
    }
    node = _node("DequantizeLinear", list(constants), f"{prefix}_dequantized", axis=axis)
    return _part([node], constants, f"{prefix}_dequantized")


def rewired(node: onnx.NodeProto, activation: str, weight: str) -> onnx.NodeProto:
    """The same multiplication of other tensors; a bias stays."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[0], copy.input[1] = activation, weight
    return copy


def assembled(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    constants: Iterable[onnx.TensorProto],
    used: Iterable[str] = (),
) -> onnx.ModelProto:
    """A model of other nodes; weights that neither they nor `used` name are dropped, and never
    copied.
    """
    result = onnx.ModelProto(ir_version=model.ir_version, producer_name=model.producer_name)
    result.opset_import.extend(model.opset_import)
    result.functions.extend(model.functions)
    result.graph.name = model.graph.name
    result.graph.input.extend(model.graph.input)
    result.graph.output.extend(model.graph.output)
    result.graph.node.extend(nodes)
    kept = (
        {name for node in nodes for name in node.input}
        | {each.name for each in model.graph.output}
        | set(used)
    )
    result.graph.initializer.extend(each for each in model.graph.initializer if each.name in kept)
    result.graph.initializer.extend(constants)
    return result


def refuse_old_opset(model: onnx.ModelProto) -> None:
    """Raises SourceFault."""
    opset = max(
        (each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=0
    )
    if opset < LEAST_OPSET:
        raise SourceFault(
            f"the network has opset {opset}; INT8 by channel needs {LEAST_OPSET} or later: export it again."
        )


def _part(nodes: Sequence[onnx.NodeProto], constants: Mapping[str, Array], output: str) -> Part:
    tensors = tuple(numpy_helper.from_array(value, name) for name, value in constants.items())
    return Part(nodes=tuple(nodes), constants=tensors, output=output)


def _node(operator: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], name=output, **attributes)
