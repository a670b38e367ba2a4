"""Small ONNX files written node by node, whole or broken, and those with operators of their own.

Each such operator is a function of the file: Scale and Shift.
"""

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


DOMAIN = "com.example"
OPSET = 17
FEED = {"x": np.random.default_rng(1).normal(size=(3, 16)).astype(np.float32)}
BODIES = {"Scale": "Mul", "Shift": "Add"}


def function(name: str) -> onnx.FunctionProto:
    """Tanh of the input and the attribute `by`, multiplied or added."""
    by = helper.make_node("Constant", [], ["by"])
    by.attribute.append(
        onnx.AttributeProto(name="value_float", type=onnx.AttributeProto.FLOAT, ref_attr_name="by")
    )
    nodes = [
        by,
        helper.make_node(BODIES[name], ["a", "by"], ["m"]),
        helper.make_node("Tanh", ["m"], ["b"]),
    ]
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_function(DOMAIN, name, ["a"], ["b"], nodes, opsets, ["by"])


def scaled_network(path: Path, *operators: str, weights: list[np.ndarray] | None = None) -> Path:
    """Two MatMuls, 16 x 32 and 32 x 8, with the operators between them."""
    random = np.random.default_rng(0)
    first, second = weights or [
        random.normal(size=size).astype(np.float32) for size in ((16, 32), (32, 8))
    ]
    names = ["h", *(f"h{index}" for index in range(len(operators)))]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="/first/MatMul"),
        *(
            helper.make_node(operator, [before], [after], domain=DOMAIN, name=operator, by=0.5)
            for operator, before, after in zip(operators, names, names[1:], strict=False)
        ),
        helper.make_node("MatMul", [names[-1], "w2"], ["y"], name="/second/MatMul"),
    ]
    values = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", size])
        for name, size in (("x", first.shape[0]), ("y", second.shape[1]))
    )
    graph = helper.make_graph(
        nodes,
        "scaled",
        *([value] for value in values),
        [numpy_helper.from_array(first, "w1"), numpy_helper.from_array(second, "w2")],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    model.functions.extend(map(function, operators))
    onnx.save(model, path)
    return path
