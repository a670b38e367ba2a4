"""Writes quantize and dequantize nodes into a network: symmetric, zero points 0, weights by output
channel.

Scales are float32 initializers named `int8_*_scale` (activations, []) and `*_weight_scale`
(weights, [output channels]), so that
whoever casts the rest of the network to FP16 finds them and what lies between a quantize and its
dequantize stays as it is.
Smoothing is one Mul by the float32 initializer `int8_*_reciprocal` before the quantize node: behind
a post-norm residual it
cannot go into the normalisation. Weights stand as int8 with a dequantize node alone.

One network in which each layer runs in float or in INT8, as asked for each run: a search loads
it once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.errors import SourceFault
from engine_build.ort import OrtNetwork
from engine_build.quantization.calibration import (
    Range,
    grid_along,
    grid_column_scales,
    grid_quantized,
    grid_scale,
)
from engine_build.quantization.layers import Constants, Layer
from engine_build.samples.feed import Array, Feed

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
        step: grid_scale(wanted.threshold),
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
        weight = weight * grid_along(wanted.smoothing.scales, weight.ndim, 1 - axis)
    steps = grid_column_scales(weight, axis)
    constants: dict[str, Array] = {
        f"{prefix}_int8": grid_quantized(weight, grid_along(steps, weight.ndim, axis)),
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


LARGEST_BYTES = (1 << 31) - 1
"""What a protobuf message can hold."""


class SwitchableNetwork:
    """The Q/DQ network and the float one in one: every layer is an If."""

    def __init__(
        self,
        model: onnx.ModelProto,
        layers: Sequence[Layer],
        ranges: Mapping[str, Range],
        *,
        largest: int = LARGEST_BYTES,
    ) -> None:
        """Raises SourceFault for a network beyond `largest` bytes."""
        self._gates = {layer.node: f"int8_gate_{index}" for index, layer in enumerate(layers)}
        both = switchable(model, layers, ranges)
        if both.ByteSize() > largest:
            size = f"{both.ByteSize() / 1e9:.2f} GB"
            raise SourceFault(
                f"the network in float and INT8 together has {size}, and a search can load {largest / 1e9:.2f} GB; "
                "leave sensitivity_search out."
            )
        self._network = OrtNetwork(both.SerializeToString())

    def rows(self, feeds: Iterable[Feed], int8: Collection[str]) -> Array:
        """Every row's answer with some layers, by node, in INT8."""
        gates = {gate: np.array(node in int8) for node, gate in self._gates.items()}
        answers: Array = np.concatenate([self._network.rows(feed | gates) for feed in feeds])
        return answers


def switchable(
    model: onnx.ModelProto, layers: Sequence[Layer], ranges: Mapping[str, Range]
) -> onnx.ModelProto:
    """The model with one more bool input per layer, `int8_gate_<place>`."""
    refuse_old_opset(model)
    constants, places = (
        Constants(model),
        {layer.output: place for place, layer in enumerate(layers)},
    )
    nodes, grids, outer = list[onnx.NodeProto](), list[onnx.TensorProto](), set[str]()
    for node in model.graph.node:
        place = places.get(node.output[0]) if node.output else None
        if place is None:
            nodes.append(node)
            continue
        layer = layers[place]
        activation = activation_part(f"gated_{place}", layer.activation, ranges[layer.activation])
        weight = weight_part(layer, constants.array(layer.weight), ranges[layer.activation])
        grids.extend([*activation.constants, *weight.constants])
        outer.update(node.input)
        quantized = [
            *activation.nodes,
            *weight.nodes,
            rewired(node, activation.output, weight.output),
        ]
        nodes.append(
            _either(f"int8_gate_{place}", layer.output, quantized, [rewired(node, *node.input[:2])])
        )
    result = assembled(model, nodes, grids, used={*outer, *(each.name for each in grids)})
    gates = [
        helper.make_tensor_value_info(f"int8_gate_{place}", TensorProto.BOOL, [])
        for place in range(len(layers))
    ]
    result.graph.input.extend(gates)
    return result


def _either(
    gate: str, output: str, then: list[onnx.NodeProto], otherwise: list[onnx.NodeProto]
) -> onnx.NodeProto:
    branches = {"then_branch": then, "else_branch": otherwise}
    graphs = {name: _branch(f"{gate}_{name}", nodes) for name, nodes in branches.items()}
    return helper.make_node("If", [gate], [output], name=f"{gate}_if", **graphs)


def _branch(name: str, nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
    """What a branch gives must have a name of its own."""
    nodes[-1].output[0] = f"{name}_output"
    return helper.make_graph(
        nodes, name, [], [helper.make_tensor_value_info(f"{name}_output", TensorProto.FLOAT, None)]
    )
