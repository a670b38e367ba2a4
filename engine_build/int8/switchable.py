"""One network in which each layer runs in float or in INT8, as asked for each run: a search loads
it once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from engine_build.errors import SourceFault
from engine_build.int8.calibration import Range
from engine_build.int8.layers import Constants, Layer
from engine_build.int8.qdq import activation_part, assembled, refuse_old_opset, rewired, weight_part
from engine_build.runtimes.ort import OrtNetwork
from engine_build.samples.feed import Array, Feed

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
