"""Layers of a network that INT8 can compute, found by the graph alone; what they cost.

Where INT8 pays on TensorRT follows the rules of NVIDIA's Model Optimizer (modelopt 0.4x). Layers
without a faster INT8 kernel stay in float: small convolutions (`find_nodes_from_convs_to_exclude`)
and products with one row or one column of output (`find_nodes_from_matmul_to_exclude`). A residual
that is added to a convolution is read in INT8 (`build_non_residual_input_map`): its activation is
kept in a quarter of float32's bytes. One that is added to a MatMul stays in float: docs/engines.md
has what was measured. An AveragePool before a convolution reads its input in INT8
(`find_quantizable_nodes`), and pools in it. A MaxPool needs no node: TensorRT moves the quantize
node behind it before it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from engine_build.datasets.dataset import ATTENTION_MASK, Array, Feed
from engine_build.onnx_graph.external_data import load_network

OPERATORS = ("MatMul", "Gemm", "Conv")
ACTIVATIONS = "Erf Gelu FastGelu Relu LeakyRelu Tanh Sigmoid Elu HardSwish HardSigmoid Softplus"
ELEMENTWISE = "Add Sub Mul Div Pow Cast Identity Dropout Clip"
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


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One MatMul, Gemm or Conv with a constant float32 weight."""

    node: str
    operator: str
    activation: str
    """The tensor that is multiplied."""
    weight: str
    """The constant's own name, behind any Identity."""
    output: str
    column_axis: int
    """The weight's axis of output channels; each has a scale of its own."""
    follows_activation_function: bool
    """True where a GELU, ReLU or the like gives the activation."""

    @property
    def channel_axis(self) -> int:
        """Axis of the activation that is summed over."""
        return 1 if self.operator == "Conv" else -1

    @property
    def can_be_smoothed(self) -> bool:
        """True where a channel of the activation meets one row of a matrix."""
        return self.operator != "Conv"

    def rows(self, weight: Array) -> Array:
        """Return the weight as [input channels, output channels]; for MatMul and Gemm only."""
        return weight if self.column_axis == 1 else weight.T


class Constants:
    """Constant tensors of a network: initializers, Constant nodes, and Identity of either."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._aliases: dict[str, str] = {}
        for node in model.graph.node:
            if node.op_type == "Constant":
                values = {item.name: item.t for item in node.attribute}
                if "value" in values:
                    self._tensors[node.output[0]] = values["value"]
            elif node.op_type == "Identity":
                self._aliases[node.output[0]] = node.input[0]

    def name(self, tensor: str) -> str | None:
        """Return the constant behind a tensor; None when the tensor is computed."""
        while tensor in self._aliases:
            tensor = self._aliases[tensor]
        return tensor if tensor in self._tensors else None

    def is_float_of_rank(self, name: str, ranks: tuple[int, ...]) -> bool:
        """Return True for a float32 constant with one of these numbers of axes."""
        tensor = self._tensors[name]
        return tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) in ranks

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a constant's sizes."""
        return tuple(self._tensors[name].dims)

    def array(self, name: str) -> Array:
        """Return a constant's values."""
        values: Array = numpy_helper.to_array(self._tensors[name])
        return values


def quantizable_layers(model: onnx.ModelProto) -> tuple[Layer, ...]:
    """Return every MatMul, Gemm and Conv with a constant float32 weight, in graph order."""
    constants = Constants(model)
    producers = {output: node for node in model.graph.node for output in node.output}
    layers = []
    for node in model.graph.node:
        if node.op_type not in OPERATORS:
            continue
        activation, weight, column_axis = node.input[0], constants.name(node.input[1]), _axis(node)
        ranks = (3, 4, 5) if node.op_type == "Conv" else (2,)
        if weight is None or not constants.is_float_of_rank(weight, ranks):
            continue
        if column_axis is None or constants.name(activation) is not None:
            continue
        layer = Layer(
            node=node_name(node),
            operator=node.op_type,
            activation=activation,
            weight=weight,
            output=node.output[0],
            column_axis=column_axis,
            follows_activation_function=_follows_activation_function(activation, producers),
        )
        layers.append(layer)
    return tuple(layers)


def implicit_int8_fault(model: onnx.ModelProto) -> str | None:
    """Return why TensorRT leaves a network in FP16 that has no Q/DQ nodes; None where it may not.

    It compiles attention into kernels that take INT8 from Q/DQ nodes alone: BERT by `--int8 --fp16`
    has no layer in INT8 (TensorRT 10.6 on an H100). Attention is a Softmax beside products of two
    activations; convolutions take calibrated ranges, so a network of those has INT8 layers.
    """
    operators = Counter(node.op_type for node in model.graph.node)
    layers = quantizable_layers(model)
    convolutions = sum(layer.operator == "Conv" for layer in layers)
    products = operators["MatMul"] - sum(layer.operator == "MatMul" for layer in layers)
    has_attention = operators["Attention"] > 0 or (operators["Softmax"] > 0 and products > 0)
    if not has_attention or convolutions * 2 > len(layers):
        return None
    return (
        "TensorRT computes attention in INT8 by Q/DQ nodes alone, so that by a calibration cache "
        f"this network's engine would be FP16 ({operators['Softmax']} Softmax, {convolutions} of "
        f"{len(layers)} layers convolutions); set `quantization: explicit`, or precision fp16."
    )


def node_name(node: onnx.NodeProto) -> str:
    """Return a node's name, or its first output's where it has none."""
    return str(node.name if node.name else node.output[0])


def not_counted(model: onnx.ModelProto) -> tuple[str, ...]:
    """Return operators whose multiply-accumulates no share counts, such as "2 Loop"."""
    counts = Counter(node.op_type for node in model.graph.node if node.op_type in NOT_COUNTED)
    return tuple(f"{count} {operator}" for operator, count in sorted(counts.items()))


def multiply_accumulates(model: onnx.ModelProto, feed: Feed) -> dict[str, int]:
    """Return those of every node that is counted, products of two activations included."""
    nodes = [node for node in model.graph.node if node.op_type in COUNTED]
    constants = {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    names = {name for node in nodes for name in tensors_of(node)}
    tensors = dict.fromkeys(sorted(names - set(constants)), -1)
    values = Activations(model, tensors).values(feed)
    shapes = constants | {name: value.shape for name, value in values.items()}
    return {node_name(node): node_work(node, shapes) for node in nodes}


def share(work: Mapping[str, int], nodes: Iterable[str]) -> float:
    """Return the part of all counted multiply-accumulates that some nodes do; 0 of none."""
    return sum(work[node] for node in nodes) / max(sum(work.values()), 1)


def work_facts(
    model: onnx.ModelProto, work: Mapping[str, int], eight_bit: Sequence[str]
) -> dict[str, Any]:
    """Return the facts of a network of which these nodes compute in eight bits."""
    return {
        "int8_share_of_matmul_macs": round(share(work, eight_bit), 4),
        "not_counted": list(not_counted(model)),
        "int8_layers": len(eight_bit),
        "float_layers": [node for node in work if node not in eight_bit],
    }


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


class Activations:
    """Values of some tensors of a network, batch by batch; padding is left out."""

    def __init__(self, model: onnx.ModelProto, tensors: Mapping[str, int]) -> None:
        """`tensors` maps names to the axis of their channels.

        The model is changed while its bytes are read, since a copy may take gigabytes.
        """
        self._tensors = dict(tensors)
        outputs = len(model.graph.output)
        present = {value.name for value in [*model.graph.output, *model.graph.input]}
        model.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in self._tensors if name not in present
        )
        self._inputs = {value.name for value in model.graph.input} & set(self._tensors)
        self._network = load_network(model)
        del model.graph.output[outputs:]

    def rows(self, feeds: Iterable[Feed]) -> Iterator[dict[str, Array]]:
        """Yield each feed's tensors as [positions, channels]."""
        for feed in feeds:
            mask = feed.get(ATTENTION_MASK)
            selected = None if mask is None else mask == 1
            values = self.values(feed).items()
            yield {name: _rows(value, self._tensors[name], selected) for name, value in values}

    def values(self, feed: Feed) -> dict[str, Array]:
        """Return each tensor for one feed."""
        computed = [name for name in self._tensors if name not in self._inputs]
        values = feed | self._network.values(computed, feed)
        return {name: values[name] for name in self._tensors}


def _axis(node: onnx.NodeProto) -> int | None:
    """Return the weight's axis of output channels.

    None for a Gemm with transA or alpha: no kernel is known to take it in INT8.
    """
    if node.op_type != "Gemm":
        return 0 if node.op_type == "Conv" else 1
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    if attributes.get("transA", 0) != 0 or not np.isclose(attributes.get("alpha", 1.0), 1.0):
        return None
    return 0 if attributes.get("transB", 0) == 1 else 1


def _follows_activation_function(tensor: str, producers: Mapping[str, onnx.NodeProto]) -> bool:
    """Search backwards through element-wise operators only, never past a MatMul or Norm."""
    waiting, seen = [tensor], set()
    while waiting:
        name = waiting.pop()
        node = producers.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        if node.op_type in ACTIVATIONS.split():
            return True
        if node.op_type in ELEMENTWISE.split():
            waiting.extend(node.input)
    return False


def _rows(value: Array, axis: int, selected: Array | None) -> Array:
    if selected is not None and value.shape[: selected.ndim] == selected.shape:
        value = value[selected]
    elif selected is not None and value.ndim == 2 and len(value) == selected.size:
        value = value[selected.reshape(-1)]
    if value.ndim == 1:
        return value[:, None]
    last: Array = np.moveaxis(value, axis if value.ndim > 2 else -1, -1)
    rows: Array = last.reshape(-1, last.shape[-1])
    return rows


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
