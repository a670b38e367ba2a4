"""Tensors of a source network that bear a name which this build gives to tensors of its own.

Quantization and half precision add tensors named `int8_<number>_…`, `fp8_<number>_…`, and by a
tensor of the network with a suffix. Exporters choose such names too: MXNet's add `fc1_bias` beside
`fc1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

from engine_build.errors import SourceFault
from engine_build.onnx_graph.external_data import subgraphs

OWN = re.compile(r"int8_(\d+_\w+|gate_\d+(_\w+)?)|fp8_(zero|\d+_\w+)|gated_\d+_\w+")
"""Whole names."""
SUFFIXES = (
    *("_weight_int8", "_weight_fp8", "_weight_scale", "_weight_zero", "_weight_dequantized"),
    *("_bias", "_shifted_away", "_of_shifted"),
    *("_fp16", "_as_fp16", "_as_fp32", "_output_fp32"),
)
"""What follows the name of another tensor."""


def free_own_names(model: onnx.ModelProto) -> bool:
    """Rename tensors inside a network that bear a name of this build's; True where some do.

    Raises SourceFault for an input or output, whose names callers know.
    """
    names = set(_names(model.graph))
    taken = {name for name in names if _is_own(name, names)}
    served = {value.name for value in (*model.graph.input, *model.graph.output)}
    for name in sorted(taken & served):
        if OWN.fullmatch(name):
            raise SourceFault(
                f"an input or output of the network is named {name!r}, which this build names a "
                "tensor of its own; export it with another name."
            )
    inside = taken - served
    if inside:
        _rename(model.graph, {name: f"source/{name}/source" for name in inside})
    return bool(inside)


def _is_own(name: str, names: set[str]) -> bool:
    if OWN.fullmatch(name):
        return True
    return any(name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in SUFFIXES)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    for body in (graph, *subgraphs(graph.node)):
        yield from (value.name for value in (*body.input, *body.initializer))
        for node in body.node:
            yield from node.output


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    for body in (graph, *subgraphs(graph.node)):
        values = (*body.input, *body.output, *body.value_info, *body.initializer)
        for value in values:
            value.name = names.get(value.name, value.name)
        for sparse in body.sparse_initializer:
            sparse.values.name = names.get(sparse.values.name, sparse.values.name)
        for node in body.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
