"""Operators that a TensorRT plugin computes: functions of the ONNX file, and nodes for trtexec.

ONNX Runtime runs a function's own nodes, by which its operator is judged. TensorRT's parser takes a
function before it looks for a plugin of that name (onnx-tensorrt, ModelImporter.cpp), so trtexec
gets the network without them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

import onnx
import onnx.inliner

from engine_build.errors import NetworkRefused
from engine_build.onnx_graph.external_data import external_names, load_weights, subgraphs
from engine_build.onnx_graph.onnx_file import read_model

ATTENTION = "Attention"
"""ONNX's own, of opset 23. TensorRT-RTX 1.7 ends with SIGSEGV or refuses it where no fused kernel
fits, and quantization looks for the MatMul nodes inside."""
ONNX_DOMAINS = ("", "ai.onnx")


def inline_functions(model: onnx.ModelProto, kept: Collection[str] = ()) -> onnx.ModelProto:
    """Return the model with a function's nodes in the place of its calls, but for those `kept`.

    `kept` are names of operators.
    """
    names = [(item.domain, item.name) for item in model.functions if item.name in kept]
    if len(names) == len(model.functions):
        return model
    if not names:
        return onnx.inliner.inline_local_functions(model)
    return onnx.inliner.inline_selected_functions(model, names, exclude=True)


def read_inlined(source: Path, operators: Collection[str] = ()) -> tuple[onnx.ModelProto, bool]:
    """Return the file with its data, all in standard nodes; True where that changes it.

    A function's nodes take the place of its calls: placement, typing and counting look at nodes.
    Those of `operators`, which a plugin computes, stay functions. Raises NetworkRefused for sparse
    weights.
    """
    whole = read_model(source, weights=False)
    model = _decompose_attention(inline_functions(whole, operators))
    _refuse_sparse_weights(model)
    if not external_names(source.name, model):
        return model, model is not whole
    load_weights(model, source.parent)
    return model, True


def _decompose_attention(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the nodes of ONNX's own definition in the place of each Attention."""
    attention = [node for node in _nodes(model) if node.op_type == ATTENTION]
    if all(node.domain not in ONNX_DOMAINS for node in attention):
        return model
    names = [(domain, ATTENTION) for domain in ONNX_DOMAINS]
    return onnx.inliner.inline_selected_functions(model, names, inline_schema_functions=True)


def refuse_undefined_operators(model: onnx.ModelProto, operators: Collection[str]) -> None:
    """Refuse operators of plugins that no node has, or no function defines. Raises NetworkRefused.

    `model` has its functions inlined, but for those of these operators.
    """
    known = {node.op_type: node.domain for node in _nodes(model)}
    for operator in sorted(operators):
        if operator not in known:
            domains = ("", "ai.onnx")
            others = sorted(name for name, domain in known.items() if domain not in domains)
            raise NetworkRefused(
                f"`engine.plugins` names operator {operator}, which no node of the network has; "
                f"those beyond ONNX's own: {', '.join(others) or 'none'}. Correct `operators`, or "
                "take the plugin out."
            )
        if operator not in {function.name for function in model.functions}:
            raise NetworkRefused(
                f"operator {operator} of `engine.plugins` has no function in the ONNX file, so "
                "no engine's answers can be judged: say what it computes in standard operators "
                f"(onnx.helper.make_function({known[operator]!r}, {operator!r}, …), added to "
                "model.functions), and name the new file and its digest."
            )


def leave_to_plugins(network: Path, operators: Collection[str]) -> None:
    """Take the functions of operators out of a network's file: its nodes alone name them."""
    model = onnx.load(network, load_external_data=False)
    others = [function for function in model.functions if function.name not in operators]
    del model.functions[:]
    model.functions.extend(others)
    network.write_bytes(model.SerializeToString())


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield nodes and those of the loops and branches among them."""
    yield from model.graph.node
    for graph in subgraphs(model.graph.node):
        yield from graph.node


def _refuse_sparse_weights(model: onnx.ModelProto) -> None:
    """Refuse weights and constants in ONNX's sparse form. Raises NetworkRefused."""
    lists = [model.graph.node, *(function.node for function in model.functions)]
    graphs = [model.graph, *(graph for nodes in lists for graph in subgraphs(nodes))]
    names = [item.values.name for graph in graphs for item in graph.sparse_initializer]
    nodes = chain(*lists, *(graph.node for graph in graphs[1:]))
    names += [node.output[0] for node in nodes if any(map(_is_sparse, node.attribute))]
    if names:
        raise NetworkRefused(
            f"weight {names[0]} of the network is sparse (SparseTensorProto), which TensorRT does "
            "not read; save it as an array of all its values (onnx.numpy_helper.from_array)."
        )


def _is_sparse(attribute: onnx.AttributeProto) -> bool:
    return bool(attribute.name == "sparse_value")
