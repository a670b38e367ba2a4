"""Layers of a Q/DQ network put back into float: the float network's own nodes in their place.

Layers of one role are put back together: those whose names differ by numbers alone, as the same
layer of every block does, and those that read one activation, as query, key and value do, since
they share its quantize node. Convolutions differ from stage to stage, which is their names' first
number.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx

from engine_build.quantization.layers import Layer, share
from engine_build.quantization.qdq import names_read, with_nodes

NUMBER = re.compile(r"\d+")
WHY = "in float because the engine is faster so on the GPU that it was compiled on"


def layer_roles(layers: Sequence[Layer]) -> dict[str, tuple[Layer, ...]]:
    """Return layers by role; a role is named after its first layer, `*` for each number."""
    roles: list[tuple[set[str], tuple[Layer, ...]]] = []
    for layer in layers:
        keys = {_pattern(layer), f"reads {layer.activation}"}
        members: tuple[Layer, ...] = (layer,)
        alike = [role for role in roles if not role[0].isdisjoint(keys)]
        roles = [role for role in roles if role not in alike]
        for role in reversed(alike):
            keys, members = keys | role[0], (*role[1], *members)
        roles.append((keys, members))
    return {_pattern(members[0]): members for _, members in roles}


def restore_layers(
    quantized: onnx.ModelProto, source: onnx.ModelProto, layers: Sequence[Layer]
) -> onnx.ModelProto:
    """Return a Q/DQ network with some layers in float, as `source`, the float network, has them.

    Adds of their products are the float network's too: a bias may hold what smoothing took away.
    """
    outputs = {layer.output for layer in layers}
    own = {
        node.output[0]: node
        for node in source.graph.node
        if outputs.intersection(node.output)
        or (node.op_type == "Add" and outputs.intersection(node.input))
    }
    nodes = [
        *_constant_nodes(source, {name for node in quantized.graph.node for name in node.output}),
        *(own.get(next(iter(node.output), ""), node) for node in quantized.graph.node),
    ]
    needed = {output.name for output in quantized.graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(names_read([node]))
            kept.append(node)
    result = with_nodes(quantized, kept[::-1], {})
    known = {weight.name for weight in result.graph.initializer}
    result.graph.initializer.extend(
        weight
        for weight in source.graph.initializer
        if weight.name in needed and weight.name not in known
    )
    return result


def _constant_nodes(source: onnx.ModelProto, known: set[str]) -> list[onnx.NodeProto]:
    """Return nodes of constants alone whose outputs are not `known`, in order.

    PyTorch's exporter writes a bias that equals another one as Identity of it, which quantization
    folds away.
    """
    constants = {"", *(weight.name for weight in source.graph.initializer)}
    found: list[onnx.NodeProto] = []
    for node in source.graph.node:
        if constants.issuperset(names_read([node])):
            constants.update(node.output)
            if known.isdisjoint(node.output):
                found.append(node)
    return found


def restored_facts(
    facts: Mapping[str, Any], work: Mapping[str, int], restored: Collection[str]
) -> dict[str, Any]:
    """Return a Q/DQ network's facts once some of its layers, by node, are float."""
    floats = {*facts["float_layers"], *restored}
    quantized = [node for node in work if node not in floats]
    layers = [
        layer | ({"int8": False, "why": WHY} if layer["node"] in restored else {})
        for layer in facts.get("layers", ())
    ]
    return {
        **facts,
        **({"layers": layers} if layers else {}),
        "int8_share_of_matmul_macs": round(share(work, quantized), 4),
        "int8_layers": facts["int8_layers"] - len(restored),
        "float_layers": [node for node in work if node in floats],
    }


def _pattern(layer: Layer) -> str:
    first = NUMBER.search(layer.node) if layer.operator == "Conv" else None
    end = 0 if first is None else first.end()
    return layer.node[:end] + NUMBER.sub("*", layer.node[end:])
