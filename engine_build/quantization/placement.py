"""Where INT8 pays on TensorRT, by the rules of NVIDIA's Model Optimizer (modelopt 0.4x).

Layers without a faster INT8 kernel stay in float: small convolutions
(`find_nodes_from_convs_to_exclude`) and products with one row or one column of output
(`find_nodes_from_matmul_to_exclude`). A residual that is added to a convolution is read in INT8
(`build_non_residual_input_map`): its activation is kept in a quarter of float32's bytes. One that
is added to a MatMul stays in float: docs/engines.md has what was measured. An AveragePool before a
convolution reads its input in INT8 (`find_quantizable_nodes`), and pools in it. A MaxPool needs no
node: TensorRT moves the quantize node behind it before it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from engine_build.quantization.layers import Constants, Layer, node_name

LEAST_CHANNELS = 16
"""In and out of a convolution: the rows and columns of an INT8 matrix instruction."""
ALIGNED_CHANNELS = 8
LEAST_GROUPED_KERNEL = 3


IMAGE_RANK = 4
"""Axes of the weight of a convolution over two dimensions; more have more."""


@dataclass(frozen=True, kw_only=True)
class Residual:
    """The input of an Add beside a convolution's output, or of a pool before a convolution."""

    tensor: str
    place: int
    """Among the node's inputs."""
    convolution: str
    """Output of the convolution."""


def left_in_float(
    model: onnx.ModelProto, layers: Sequence[Layer], work: Mapping[str, int], *, one_sample: bool
) -> dict[str, str]:
    """Return why layers stay in float, by node; the others may be INT8.

    `work` are multiply-accumulates of one sample; `one_sample` is True where engines are tuned for
    one sample at a time.
    """
    constants, reasons = Constants(model), dict[str, str]()
    inputs = {value.name for value in model.graph.input}
    nodes = {node_name(node): node for node in model.graph.node}
    for layer in layers:
        shape = constants.shape(layer.weight)
        if layer.operator == "Conv":
            reason = _small_convolution(nodes[layer.node], shape, first=layer.activation in inputs)
        elif shape[layer.column_axis] == 1:
            reason = "one column of output"
        else:
            one_row = one_sample and work[layer.node] == math.prod(shape)
            reason = "one row of output at the opt shape" if one_row else None
        if reason is not None:
            reasons[layer.node] = f"{reason}: TensorRT has no faster INT8 kernel for it"
    return reasons


def residual_inputs(model: onnx.ModelProto, layers: Sequence[Layer]) -> dict[str, Residual]:
    """Return the residual of each Add that takes a convolution's output, by the Add's own output.

    Where both inputs are convolutions' the second is the residual. Other readers of the
    convolution forbid the fusion that the residual is quantized for.
    """
    convolutions = {layer.output for layer in layers if layer.operator == "Conv"}
    if not convolutions:
        return {}
    constants = Constants(model)
    given = {value.name for value in (*model.graph.input, *model.graph.output)}
    reads = Counter(name for node in model.graph.node for name in node.input)
    normalized = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "BatchNormalization" and reads[node.input[0]] == 1
    }
    residuals = {}
    for node in model.graph.node:
        if node.op_type != "Add" or any(constants.name(name) for name in node.input):
            continue
        for place, name in enumerate(node.input):
            source, other = normalized.get(name, name), node.input[1 - place]
            alone = reads[name] == 1 and not {source, name} & given
            if source in convolutions and alone and other not in given:
                residuals[node.output[0]] = Residual(
                    tensor=other, place=1 - place, convolution=source
                )
                break
    return residuals


def pooling_inputs(model: onnx.ModelProto, layers: Sequence[Layer]) -> dict[str, Residual]:
    """Return the input of each AveragePool that a convolution over images reads, by its output."""
    constants, given = Constants(model), {value.name for value in model.graph.input}
    convolutions = {
        layer.activation: layer.output
        for layer in layers
        if layer.operator == "Conv" and len(constants.shape(layer.weight)) >= IMAGE_RANK
    }
    return {
        node.output[0]: Residual(
            tensor=node.input[0], place=0, convolution=convolutions[node.output[0]]
        )
        for node in model.graph.node
        if node.op_type == "AveragePool"
        and node.output[0] in convolutions
        and node.input[0] not in given
    }


def int8_inputs(model: onnx.ModelProto, layers: Sequence[Layer]) -> dict[str, Residual]:
    """Return what Add and AveragePool read in INT8, by their outputs."""
    return residual_inputs(model, layers) | pooling_inputs(model, layers)


def int8_tensors(model: onnx.ModelProto, layers: Sequence[Layer]) -> tuple[str, ...]:
    """Return the tensors that nodes beside the layers read in INT8, in graph order."""
    inputs = int8_inputs(model, layers).values()
    return tuple(dict.fromkeys(item.tensor for item in inputs))


def _small_convolution(node: onnx.NodeProto, shape: tuple[int, ...], *, first: bool) -> str | None:
    """Return the size of a convolution that is too small for INT8; None for any other.

    `shape` is the weight's: [output channels, input channels of a group, kernel …]. Under
    LEAST_CHANNELS a square kernel serves where channels are aligned and the convolution is wide on
    one side or reads an input of the network (`first`); a grouped one where its kernel is large.
    """
    outputs, inputs, *kernel = shape
    groups = next((item.i for item in node.attribute if item.name == "group"), 1)
    if min(outputs, inputs) >= LEAST_CHANNELS:
        return None
    if groups > 1:
        if outputs % ALIGNED_CHANNELS == 0 and min(kernel) >= LEAST_GROUPED_KERNEL:
            return None
        return f"a convolution of {groups} groups, {inputs} channels each, to {outputs} in all"
    aligned = outputs % ALIGNED_CHANNELS == 0 or inputs % ALIGNED_CHANNELS == 0
    wide = first or max(outputs, inputs) >= LEAST_CHANNELS
    if aligned and wide and len(set(kernel)) == 1:
        return None
    return f"a convolution of {inputs} channels to {outputs}"
