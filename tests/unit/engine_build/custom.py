"""Networks with operators of their own, each a function of the file: Scale and Shift."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

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
