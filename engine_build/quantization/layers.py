"""Layers that INT8 pays for, their multiply-accumulates, and the values of tensors in a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from engine_build.ort import OrtNetwork
from engine_build.samples.feed import ATTENTION_MASK, Array, Feed

OPERATORS = ("MatMul", "Gemm", "Conv")
ACTIVATIONS = {
    "Erf",
    "Gelu",
    "FastGelu",
    "Relu",
    "LeakyRelu",
    "Tanh",
    "Sigmoid",
    "Elu",
    "HardSwish",
    "HardSigmoid",
    "Softplus",
}
ELEMENTWISE = {"Add", "Sub", "Mul", "Div", "Pow", "Cast", "Identity", "Dropout", "Clip"}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One MatMul, Gemm or Conv with a constant weight."""

    node: str
    operator: str
    activation: str
    """The tensor that is multiplied."""
    weight: str
    """The constant's own name, behind any Identity."""
    output: str
    column_axis: int
    """Of the weight: its output channels, each with a scale of its own."""
    follows_activation_function: bool
    """Its input is what a GELU, ReLU … gave."""

    @property
    def channel_axis(self) -> int:
        """Of the activation: the channels that are summed over."""
        return 1 if self.operator == "Conv" else -1

    @property
    def can_be_smoothed(self) -> bool:
        """True where a channel of the activation meets one row of a matrix."""
        return self.operator != "Conv"

    def rows(self, weight: Array) -> Array:
        """The weight as [input channels, output channels]; only of layers that can be smoothed."""
        return weight if self.column_axis == 1 else weight.T


class Constants:
    """The constant tensors of a network: initializers, and what Constant and Identity nodes make of
    them.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._tensors = {each.name: each for each in model.graph.initializer}
        self._aliases: dict[str, str] = {}
        for node in model.graph.node:
            if node.op_type == "Constant":
                self._tensors.update(
                    (node.output[0], each.t) for each in node.attribute if each.name == "value"
                )
            elif node.op_type == "Identity":
                self._aliases[node.output[0]] = node.input[0]

    def name(self, tensor: str) -> str | None:
        """The constant that a tensor is; None when it is computed."""
        while tensor in self._aliases:
            tensor = self._aliases[tensor]
        return tensor if tensor in self._tensors else None

    def is_float_of_rank(self, name: str | None, ranks: tuple[int, ...]) -> bool:
        """True for float32 constants with that many axes."""
        tensor = None if name is None else self._tensors[name]
        return (
            tensor is not None
            and tensor.data_type == onnx.TensorProto.FLOAT
            and len(tensor.dims) in ranks
        )

    def array(self, name: str) -> Array:
        """A constant's values."""
        values: Array = numpy_helper.to_array(self._tensors[name])
        return values


def layers(model: onnx.ModelProto) -> tuple[Layer, ...]:
    """Every MatMul, Gemm and Conv by a constant float32 weight, in graph order."""
    constants = Constants(model)
    producers = {output: node for node in model.graph.node for output in node.output}
    found = (
        _layer(node, constants, producers) for node in model.graph.node if node.op_type in OPERATORS
    )
    return tuple(layer for layer in found if layer is not None)


def node_name(node: onnx.NodeProto) -> str:
    """What a node is called here: its name, or else its first output's."""
    return str(node.name if node.name else node.output[0])


def _layer(
    node: onnx.NodeProto, constants: Constants, producers: Mapping[str, onnx.NodeProto]
) -> Layer | None:
    activation, weight = node.input[0], constants.name(node.input[1])
    ranks = (3, 4, 5) if node.op_type == "Conv" else (2,)
    if (
        weight is None
        or not constants.is_float_of_rank(weight, ranks)
        or constants.name(activation) is not None
    ):
        return None
    column_axis = _column_axis(node)
    if column_axis is None:
        return None
    return Layer(
        node=node_name(node),
        operator=node.op_type,
        activation=activation,
        weight=weight,
        output=node.output[0],
        column_axis=column_axis,
        follows_activation_function=_follows_activation_function(activation, producers),
    )


def _column_axis(node: onnx.NodeProto) -> int | None:
    """None for a Gemm that turns its activation or scales its product: no kernel is known to take
    those in INT8.
    """
    if node.op_type == "Conv":
        return 0
    if node.op_type == "MatMul":
        return 1
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    if attributes.get("transA", 0) != 0 or not np.isclose(attributes.get("alpha", 1.0), 1.0):
        return None
    return 0 if attributes.get("transB", 0) == 1 else 1


def _follows_activation_function(tensor: str, producers: Mapping[str, onnx.NodeProto]) -> bool:
    """Walks back through element-wise operators only, so a multiplication or a normalisation
    between ends the search.
    """
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


class Activations:
    """Some tensors of a network, seen batch by batch; padding is left out."""

    def __init__(self, model: onnx.ModelProto, tensors: Mapping[str, int]) -> None:
        """`tensors` maps names to the axis of their channels.

        The model is changed for a moment: a copy may be gigabytes.
        """
        self._tensors = dict(tensors)
        own = len(model.graph.output)
        present = {each.name for each in [*model.graph.output, *model.graph.input]}
        model.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in self._tensors if name not in present
        )
        self._inputs = {each.name for each in model.graph.input} & set(self._tensors)
        self._network = OrtNetwork(model.SerializeToString())
        del model.graph.output[own:]

    def rows(self, feeds: Iterable[Feed]) -> Iterator[dict[str, Array]]:
        """For each feed, each tensor as [positions, channels]."""
        for feed in feeds:
            mask = feed.get(ATTENTION_MASK)
            kept = None if mask is None else mask == 1
            yield {
                name: _rows(value, self._tensors[name], kept)
                for name, value in self.values(feed).items()
            }

    def values(self, feed: Feed) -> dict[str, Array]:
        """Each tensor for one feed."""
        computed = [name for name in self._tensors if name not in self._inputs]
        found = self._network.values(computed, feed)
        return {name: feed[name] if name in self._inputs else found[name] for name in self._tensors}


def _rows(value: Array, axis: int, kept: Array | None) -> Array:
    if kept is not None and value.shape[: kept.ndim] == kept.shape:
        value = value[kept]
    elif kept is not None and value.ndim == 2 and len(value) == kept.size:
        value = value[kept.reshape(-1)]
    if value.ndim == 1:
        return value[:, None]
    last: Array = np.moveaxis(value, axis if value.ndim > 2 else -1, -1)
    rows: Array = last.reshape(-1, last.shape[-1])
    return rows


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
