"""Names of tensors that this build gives itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engine_build.errors import SourceFault
from engine_build.onnx_graph.tensor_names import free_own_names
from engine_build.ort import OrtNetwork
from tests.unit.engine_build.graphs import node, tensor, write_graph

RANDOM = np.random.default_rng(0)
FEED = {"x": RANDOM.standard_normal((3, 4)).astype(np.float32)}


def network(path, *, weight, product, bias, output="y"):
    weights = {
        weight: RANDOM.standard_normal((4, 2)).astype(np.float32),
        bias: RANDOM.standard_normal(2).astype(np.float32),
    }
    branch = helper.make_graph(
        [node("Relu", product, "branch")],
        "branch",
        [],
        [helper.make_tensor_value_info("branch", TensorProto.FLOAT, None)],
    )
    nodes = [
        node("MatMul", f"x {weight}", product),
        node("Constant", "", "yes", value=onnx.numpy_helper.from_array(np.array(True), "t")),
        node("If", "yes", "act", then_branch=branch, else_branch=branch),
        node("Add", f"act {bias}", output),
    ]
    write_graph(path, nodes, [tensor("x", "b", 4)], [tensor(output, "b", 2)], **weights)
    return onnx.load(path)


@pytest.mark.parametrize(
    "names",
    [
        {"weight": "int8_0_scale", "product": "int8_gate_0", "bias": "int8_0_zero"},
        {"weight": "fp8_zero", "product": "fp8_0_scale", "bias": "w"},
        {"weight": "w", "product": "fc1", "bias": "fc1_bias"},
        {"weight": "w", "product": "x_as_fp16", "bias": "y_output_fp32"},
    ],
)
def test_own_names_become_free_and_answers_stay(names, tmp_path):
    model = network(tmp_path / "model.onnx", **names)
    before = OrtNetwork(tmp_path / "model.onnx").rows(FEED)
    assert free_own_names(model)
    assert not free_own_names(model)
    assert np.array_equal(OrtNetwork(model.SerializeToString()).rows(FEED), before)


def test_other_names_stay_and_one_that_callers_know_is_refused(tmp_path):
    path = tmp_path / "model.onnx"
    model = network(path, weight="fc1.weight", product="fc1", bias="b_bias", output="int8_0")
    before = model.SerializeToString()
    assert not free_own_names(model)
    assert model.SerializeToString() == before
    model = network(path, weight="w", product="p", bias="b", output="int8_0_scale")
    with pytest.raises(SourceFault, match=r"'int8_0_scale', .* export it with another name"):
        free_own_names(model)
