"""Sparse tensors of a network, which TensorRT's parser does not read, written out in full."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import numpy_helper


def densify_weights(model: onnx.ModelProto) -> bool:
    """Replace sparse weights and constants of a checked model by dense ones; True where some are.

    Their data is in memory.
    """
    functions = [_densify_nodes(function.node) for function in model.functions]
    return _densify_graph(model.graph) or any(functions)


def _densify_graph(graph: onnx.GraphProto) -> bool:
    if not graph.sparse_initializer:
        return _densify_nodes(graph.node)
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse.values.name, sparse))
    del graph.sparse_initializer[:]
    _densify_nodes(graph.node)
    return True


def _densify_nodes(nodes: Iterable[onnx.NodeProto]) -> bool:
    is_changed = False
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name == "sparse_value":
                attribute.t.CopyFrom(_dense("", attribute.sparse_tensor))
                attribute.ClearField("sparse_tensor")
                attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
                is_changed = True
            # Changing the empty graph of another attribute's type would add it.
            bodies = [attribute.g] if attribute.HasField("g") else []
            for graph in (*bodies, *attribute.graphs):
                is_changed = _densify_graph(graph) or is_changed
    return is_changed


def _dense(name: str, sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """Return a tensor of all values; indices count them, or name an index for each axis."""
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 2:
        dense[tuple(indices.T)] = values
    else:
        dense.reshape(-1)[indices] = values
    return numpy_helper.from_array(dense, name)
