"""The search for the first layer that differs, in real plans: an overflow amid a network."""

from __future__ import annotations

import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.tensorrt.bisection import first_difference
from engine_build.tensorrt.half_precision import half_precision
from tests.gpu.compiled import plan_rows
from tests.gpu.test_trtexec import pytestmark  # noqa: F401

WIDTH, ROWS, LAYERS, LOUD = 64, 8, 8, 4


def network() -> onnx.ModelProto:
    """Residual layers of two MatMuls, of which one leaves FP16's range between them."""
    random = np.random.default_rng(0)
    nodes, constants, tensor = [], [], "x"
    for layer in range(LAYERS):
        up, relu, down, total = (f"{name}{layer}" for name in ("up", "relu", "down", "sum"))
        for name, size in ((up, 6e4), (down, 1 / 6e4)):
            weight = random.standard_normal((WIDTH, WIDTH)) / 8 * (size if layer == LOUD else 1)
            constants.append(numpy_helper.from_array(weight.astype(np.float32), f"{name}.weight"))
        nodes += [
            helper.make_node("MatMul", [tensor, f"{up}.weight"], [f"{up}:0"], up),
            helper.make_node("Relu", [f"{up}:0"], [f"{relu}:0"], relu),
            helper.make_node("MatMul", [f"{relu}:0", f"{down}.weight"], [f"{down}:0"], down),
            helper.make_node("Add", [tensor, f"{down}:0"], [f"{total}:0"], total),
        ]
        tensor = f"{total}:0"
    nodes.append(helper.make_node("Identity", [tensor], ["y"], "y"))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "layers",
        [value("x", TensorProto.FLOAT, [ROWS, WIDTH])],
        [value("y", TensorProto.FLOAT, [ROWS, WIDTH])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_overflow_in_the_middle_is_found_by_its_node(tmp_path, record_property):
    """A kernel may hold a layer's own values in FP32: then the node that reads them is named."""
    onnx.save(network(), tmp_path / "whole.onnx")
    x = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
    begin = time.monotonic()

    def engine_rows(cut, feed, seconds):
        return plan_rows(half_precision(onnx.load(cut)), feed, tmp_path, "half")

    (tmp_path / "cuts").mkdir()
    found = first_difference(tmp_path / "whole.onnx", {"x": x}, engine_rows, tmp_path / "cuts")
    record_property("cuts", found.cuts)
    record_property("seconds", round(time.monotonic() - begin, 1))
    record_property("sentence", str(found))
    assert found.node in {f"{part}{LOUD}" for part in ("up", "relu", "down", "sum")}
    assert not np.isfinite(found.engine) and np.isfinite(found.network)
