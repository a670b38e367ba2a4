"""Writes QuantizeLinear and DequantizeLinear nodes into a network: symmetric, zero points 0.

Scales are float32 initializers named `int8_*_scale` (activations, []) and `*_weight_scale`
(weights, [output channels]), so that a conversion of the rest to FP16 finds them and leaves what
lies between a quantize node and its dequantize node as it is. Smoothing is a Mul by the float32
initializer `int8_*_reciprocal` and, where channels are shifted, an Add of `int8_*_offset` before
the quantize node: behind a post-norm residual they cannot go into the normalisation. What a shift
takes from a product is added to its bias. Weights stand as int8 with a dequantize node alone. An
Add behind a convolution in INT8, and an AveragePool before one, read a dequantize node (placement).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.datasets.dataset import Array, Feed
from engine_build.errors import NothingForInt8, SourceFault
from engine_build.onnx_graph.external_data import (
    LARGEST_ONNX_BYTES,
    RESERVED_BYTES,
    load_network,
    save_model,
    subgraphs,
)
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.onnx_file import opset
from engine_build.ort import OrtNetwork
from engine_build.quantization.calibration import (
    Range,
    along_axis,
    channel_scales,
    round_to_int8,
    tensor_scale,
)
from engine_build.quantization.layers import Constants, Layer, Residual, int8_inputs
from onboarding.values import LEAST_INT8_OPSET, Precision

Part = tuple[list[onnx.NodeProto], dict[str, Array]]
"""Nodes, of which the last gives the part's output, and their constants by name."""


class SwitchableNetwork:
    """The float and the Q/DQ network in one: every layer is an If with its own gate."""

    def __init__(
        self,
        model: onnx.ModelProto,
        layers: Sequence[Layer],
        ranges: Mapping[str, Range],
        *,
        largest: int = LARGEST_ONNX_BYTES - RESERVED_BYTES,
    ) -> None:
        """A network beyond `largest` bytes is loaded by way of a file. Raises SourceFault."""
        self._gates = {layer.node: f"int8_gate_{index}" for index, layer in enumerate(layers)}
        both = with_gates(model, layers, ranges)
        self._network = load_network(both, largest=largest)

    def rows(
        self,
        feeds: Iterable[Feed],
        int8: Collection[str],
        aligned: Callable[[Array, Feed], Array] = lambda rows, feed: rows,
    ) -> Array:
        """Return every sample's row with some layers, by node, in INT8.

        `aligned` is the encoder's: rows of one width, whatever their feed.
        """
        gates = {gate: np.array(node in int8) for node, gate in self._gates.items()}
        rows: Array = np.concatenate(
            [aligned(self._network.rows(feed | gates), feed) for feed in feeds]
        )
        return rows


def quantize_layers(
    model: onnx.ModelProto, layers: Sequence[Layer], ranges: Mapping[str, Range]
) -> onnx.ModelProto:
    """Return the network with some layers in INT8; `ranges` by activation.

    Layers that share an activation quantize it once. Raises SourceFault.
    """
    _refuse_old_opset(model)
    weights, chosen = Constants(model), {layer.output: layer for layer in layers}
    prefixes = {name: f"int8_{index}" for index, name in enumerate(ranges)}
    biases = _biases(model, weights, chosen)
    corrected: dict[str, tuple[str, Array]] = {}
    residuals = _residuals(model, layers, ranges)
    outputs: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {}

    def dequantized(name: str) -> str:
        if name not in outputs:
            part_nodes, part_constants = _activation_part(prefixes[name], name, ranges[name])
            nodes.extend(part_nodes)
            constants.update(part_constants)
            outputs[name] = part_nodes[-1].output[0]
        return outputs[name]

    for node in model.graph.node:
        layer = chosen.get(node.output[0]) if node.output else None
        if layer is None:
            if node.output and (residual := residuals.get(node.output[0])):
                node = _with_input(node, residual.place, dequantized(residual.tensor))
            nodes.append(_with_bias(node, corrected, constants))
            continue
        limits = ranges[layer.activation]
        activation = dequantized(layer.activation)
        weight = _weight_part(layer, weights.array(layer.weight), limits)
        nodes += weight[0]
        constants |= weight[1]
        int8 = with_inputs(node, activation, nodes[-1].output[0])
        constant = _shifted_away(layer, weight, limits)
        if constant is not None and layer.output in biases:
            addition, bias = biases[layer.output]
            corrected[addition] = layer.output, constant + weights.array(bias)
            constant = None
        int8_nodes, int8_constants = _product_part(int8, constant)
        nodes += int8_nodes
        constants |= int8_constants
    return with_nodes(model, nodes, constants)


def _biases(
    model: onnx.ModelProto, weights: Constants, layers: Mapping[str, Layer]
) -> dict[str, tuple[str, str]]:
    """Return the output and the constant of the one Add that reads each layer's output."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in names_read([node]):
            readers.setdefault(name, []).append(node)
    given, biases = {output.name for output in model.graph.output}, {}
    for output in layers:
        reading = readers.get(output, [])
        if output in given or len(reading) != 1 or reading[0].op_type != "Add":
            continue
        for tensor in reading[0].input:
            bias = weights.name(tensor)
            if bias is not None and weights.is_float_of_rank(bias, (1,)):
                biases[output] = reading[0].output[0], bias
    return biases


def _with_bias(
    node: onnx.NodeProto, corrected: Mapping[str, tuple[str, Array]], constants: dict[str, Array]
) -> onnx.NodeProto:
    """Return a bias's Add with the constant of the shift in it; any other node as it is."""
    output = node.output[0] if node.output else ""
    if output not in corrected:
        return node
    product, bias = corrected[output]
    constants[f"{output}_bias"] = bias
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [product, f"{output}_bias"]
    return copy


def with_gates(
    model: onnx.ModelProto, layers: Sequence[Layer], ranges: Mapping[str, Range]
) -> onnx.ModelProto:
    """Return the model with one more bool input per layer, `int8_gate_<index>`."""
    _refuse_old_opset(model)
    weights = Constants(model)
    indices = {layer.output: index for index, layer in enumerate(layers)}
    residuals = _residuals(model, layers, ranges)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {}
    for node in model.graph.node:
        index = indices.get(node.output[0]) if node.output else None
        if index is None:
            if node.output and (residual := residuals.get(node.output[0])):
                gate, tensor = indices[residual.convolution], residual.tensor
                output = f"residual_{gate}"
                part, values = _activation_part(output, tensor, ranges[tensor])
                constants |= values
                identity = make_node("Identity", [tensor], f"{output}_float")
                branches = {"then_branch": part, "else_branch": [identity]}
                nodes.append(_if_node(f"int8_gate_{gate}", output, branches))
                node = _with_input(node, residual.place, output)
            nodes.append(node)
            continue
        layer, limits = layers[index], ranges[layers[index].activation]
        activation, scales = _activation_part(f"gated_{index}", layer.activation, limits)
        weight, values = _weight_part(layer, weights.array(layer.weight), limits)
        int8 = with_inputs(node, activation[-1].output[0], weight[-1].output[0])
        product, correction = _product_part(int8, _shifted_away(layer, (weight, values), limits))
        constants |= scales | values | correction
        branches = {
            "then_branch": [*activation, *weight, *product],
            "else_branch": [with_inputs(node, *node.input[:2])],
        }
        nodes.append(_if_node(f"int8_gate_{index}", layer.output, branches))
    result = with_nodes(model, nodes, constants)
    result.graph.input.extend(
        helper.make_tensor_value_info(f"int8_gate_{index}", TensorProto.BOOL, [])
        for index in range(len(layers))
    )
    return result


def _residuals(
    model: onnx.ModelProto, layers: Sequence[Layer], ranges: Mapping[str, Range]
) -> dict[str, Residual]:
    """Return those whose own values have a range; a smoothed activation has another's."""
    own = {name for name, limits in ranges.items() if limits.smoothing is None}
    residuals = int8_inputs(model, layers).items()
    return {output: residual for output, residual in residuals if residual.tensor in own}


def _activation_part(prefix: str, tensor: str, limits: Range) -> Part:
    """Return Mul and Add, where the activation is smoothed, then the nodes of Q/DQ."""
    step, zero = f"{prefix}_scale", f"{prefix}_zero"
    constants: dict[str, Array] = {
        step: tensor_scale(limits.threshold),
        zero: np.array(0, dtype=np.int8),
    }
    nodes = []
    if limits.smoothing is not None:
        scales, shifts = limits.smoothing.scales, limits.smoothing.shifts
        constants[f"{prefix}_reciprocal"] = (1 / scales).astype(np.float32)
        nodes.append(make_node("Mul", [tensor, f"{prefix}_reciprocal"], f"{prefix}_smoothed"))
        tensor = f"{prefix}_smoothed"
        if shifts is not None:
            constants[f"{prefix}_offset"] = (-shifts / scales).astype(np.float32)
            nodes.append(make_node("Add", [tensor, f"{prefix}_offset"], f"{prefix}_shifted"))
            tensor = f"{prefix}_shifted"
    return [*nodes, *qdq_pair(prefix, tensor, step, zero)], constants


def qdq_pair(prefix: str, tensor: str, scale: str, zero: str) -> list[onnx.NodeProto]:
    """Return the quantize and the dequantize node of an activation."""
    quantized = f"{prefix}_quantized"
    return [
        make_node("QuantizeLinear", [tensor, scale, zero], quantized),
        make_node("DequantizeLinear", [quantized, scale, zero], f"{prefix}_dequantized"),
    ]


def _weight_part(layer: Layer, weight: Array, limits: Range) -> Part:
    """Return the int8 weight, its rows multiplied by the smoothing, and DequantizeLinear.

    Its counts are the calibration's, where it rounded the weight; else the nearest ones.
    """
    prefix, axis = f"{layer.output}_weight", layer.column_axis
    if limits.smoothing is not None:
        weight = weight * along_axis(limits.smoothing.scales, weight.ndim, 1 - axis)
    steps = channel_scales(weight, axis)
    rounded = limits.weights.get(layer.output)
    if rounded is None:
        counts = round_to_int8(weight, along_axis(steps, weight.ndim, axis))
    else:
        counts = np.ascontiguousarray(layer.rows(rounded))
    constants: dict[str, Array] = {
        f"{prefix}_int8": counts,
        f"{prefix}_scale": steps,
        f"{prefix}_zero": np.zeros(len(steps), dtype=np.int8),
    }
    node = make_node("DequantizeLinear", list(constants), f"{prefix}_dequantized", axis=axis)
    return [node], constants


def _product_part(product: onnx.NodeProto, constant: Array | None) -> Part:
    """Return a multiplication, and an Add of what a shift took from it where no bias holds it."""
    if constant is None:
        return [product], {}
    output, name = product.output[0], f"{product.output[0]}_shifted_away"
    product.output[0] = f"{output}_of_shifted"
    return [product, make_node("Add", [product.output[0], name], output)], {name: constant}


def _shifted_away(layer: Layer, weight: Part, limits: Range) -> Array | None:
    """Return what the shift of a layer's activation takes from its products; None: nothing."""
    if limits.smoothing is None or limits.smoothing.shifts is None:
        return None
    counts, steps, _ = weight[1].values()
    rows = layer.rows(counts * along_axis(steps, counts.ndim, layer.column_axis))
    return limits.smoothing.constant(rows)


def with_inputs(node: onnx.NodeProto, activation: str, weight: str) -> onnx.NodeProto:
    """Return the same multiplication of other tensors; a bias stays."""
    return _with_input(_with_input(node, 0, activation), 1, weight)


def _with_input(node: onnx.NodeProto, place: int, tensor: str) -> onnx.NodeProto:
    """Return a node that reads one other tensor."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[place] = tensor
    return copy


def with_nodes(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], constants: Mapping[str, Array]
) -> onnx.ModelProto:
    """Return a model of other nodes; weights that nothing reads are dropped and never copied."""
    result = onnx.ModelProto(ir_version=model.ir_version, producer_name=model.producer_name)
    result.opset_import.extend(model.opset_import)
    result.functions.extend(model.functions)
    result.graph.name = model.graph.name
    result.graph.input.extend(model.graph.input)
    result.graph.output.extend(model.graph.output)
    result.graph.node.extend(nodes)
    names = {*names_read(nodes), *(output.name for output in model.graph.output)}
    result.graph.initializer.extend(
        tensor for tensor in model.graph.initializer if tensor.name in names
    )
    result.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    return result


def names_read(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    """Yield the tensors that nodes read, those that Loop, If and Scan bodies read included."""
    graphs = list(subgraphs(nodes))
    for node in chain(nodes, *(graph.node for graph in graphs)):
        yield from node.input
    for graph in graphs:
        yield from (output.name for output in graph.output)


def _refuse_old_opset(model: onnx.ModelProto) -> None:
    if opset(model) < LEAST_INT8_OPSET:
        raise SourceFault(
            f"the network has opset {opset(model)}; INT8 by channel needs {LEAST_INT8_OPSET} or "
            "later: export it again."
        )


def write_quantized(
    model: onnx.ModelProto, network: Network, precision: Precision, folder: Path, feed: Feed
) -> Network:
    """Write the Q/DQ network of a float one and run it once. Raises NothingForInt8 for NaN."""
    path = folder / "model.onnx"
    save_model(model, path)
    onnx.checker.check_model(str(path))
    if not np.isfinite(OrtNetwork(path).rows(feed)).all():
        plainer = {"int8": "fp32", "fp8": "fp16"}[precision]
        raise NothingForInt8(
            f"the {precision.upper()} Q/DQ network gives NaN or Inf; ask for precision {plainer}."
        )
    return replace(network, precision=precision, path=path, tokenizer=None)


def _if_node(
    gate: str, output: str, branches: Mapping[str, Sequence[onnx.NodeProto]]
) -> onnx.NodeProto:
    prefix, graphs = f"{gate}_{output}", {}
    for name, nodes in branches.items():
        # Each branch needs an output name of its own.
        result = f"{prefix}_{name}_output"
        nodes[-1].output[0] = result
        value = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        graphs[name] = helper.make_graph(nodes, f"{prefix}_{name}", [], [value])
    return helper.make_node("If", [gate], [output], name=f"{prefix}_if", **graphs)


def make_node(operator: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    """Return a node that is named after its one output."""
    return helper.make_node(operator, inputs, [output], name=output, **attributes)
