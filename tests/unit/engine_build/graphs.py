"""Small ONNX files written node by node, whole or broken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def tensor(name: str, *shape: Any, kind: int = FLOAT) -> onnx.ValueInfoProto:
    """An input or output; axes are sizes, names, or None."""
    return helper.make_tensor_value_info(name, kind, list(shape))


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; inputs and outputs are words."""
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def write_graph(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    *,
    opset: int = 17,
    domains: Sequence[str] = (),
    **weights: Any,
) -> Path:
    """An ONNX file."""
    constants = [
        numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()
    ]
    opsets = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(domain, 1) for domain in domains),
    ]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), constants)
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=9, producer_name="tests", producer_version="1"
    )
    onnx.save(model, path)
    return path


def linear(path: Path, *, opset: int = 17, weight: Any = None, **changes: Any) -> Path:
    """Y = x W: [batch, 4] to [batch, 3]."""
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3) if weight is None else weight
    settings: dict[str, Any] = {
        "inputs": [tensor("x", "batch", 4)],
        "outputs": [tensor("y", "batch", 3)],
        **changes,
    }
    return write_graph(
        path, [node("MatMul", "x w", "y", name="/head/MatMul")], opset=opset, w=matrix, **settings
    )
