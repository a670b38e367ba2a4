"""Custom operators and names that a network may not have."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engine_build.errors import NetworkRefused, SourceFault
from engine_build.onnx_graph.onnx_file import (
    free_own_names,
    inline_functions,
    leave_to_plugins,
    read_inlined,
    refuse_undefined_operators,
)
from engine_build.ort import OrtNetwork
from tests.unit.engine_build.custom import FEED, scaled_network
from tests.unit.engine_build.graphs import node, tensor, write_graph


@pytest.fixture
def network(tmp_path):
    return scaled_network(tmp_path / "model.onnx", "Scale", "Shift")


def test_functions_that_no_plugin_computes_are_inlined_and_the_others_run_and_leave(
    network, tmp_path
):
    model = inline_functions(onnx.load(network), {"Scale"})
    operators = [node.op_type for node in model.graph.node]
    assert "Scale" in operators and "Shift" not in operators
    assert [function.name for function in model.functions] == ["Scale"]
    assert not inline_functions(onnx.load(network)).functions
    path = tmp_path / "kept.onnx"
    onnx.save(model, path)
    assert np.allclose(OrtNetwork(path).rows(FEED), OrtNetwork(network).rows(FEED))
    # trtexec gets the nodes and no functions.
    leave_to_plugins(path, {"Scale"})
    model = onnx.load(path)
    assert not model.functions and "Scale" in {node.op_type for node in model.graph.node}


def test_attention_of_opset_23_becomes_its_own_nodes(tmp_path):
    """The compile check ended with signal 11, and ONNX Runtime's quantizer took it for its own."""
    attention = node("Attention", "x x x", "a", q_num_heads=2, kv_num_heads=2, is_causal=1)
    values = [tensor(name, "batch", 5, 8) for name in ("x", "y")]
    path = write_graph(
        tmp_path / "a.onnx", [attention, node("Relu", "a", "y")], values[:1], values[1:], opset=23
    )
    model, is_changed = read_inlined(path)
    operators = {item.op_type for item in model.graph.node}
    assert is_changed and "MatMul" in operators and "Attention" not in operators
    feed = {"x": np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)}
    own = OrtNetwork(model.SerializeToString()).rows(feed)
    assert np.allclose(own, OrtNetwork(path).rows(feed), atol=1e-5)


def in_a_branch(model):
    body = onnx.helper.make_graph(list(model.graph.node), "body", [], [])
    branch = onnx.helper.make_node("If", ["go"], ["y"], then_branch=body, else_branch=body)
    del model.graph.node[:]
    model.graph.node.append(branch)


@pytest.mark.parametrize(
    ("change", "operators", "reason"),
    [
        (lambda model: None, {"Scale", "Shift"}, None),
        (in_a_branch, {"Scale"}, None),
        (
            lambda model: None,
            {"Turn"},
            "names operator Turn, which no node .*beyond ONNX's own: Scale, Shift. Correct",
        ),
        (
            lambda model: model.ClearField("functions"),
            {"Scale"},
            r"operator Scale .*has no function .*make_function\('com.example', 'Scale'",
        ),
    ],
    ids=["taken", "inside a branch", "no node", "no function"],
)
def test_refuses_operators_without_a_node_or_a_function(network, change, operators, reason):
    model = onnx.load(network)
    change(model)
    if reason is None:
        refuse_undefined_operators(model, operators)
        return
    with pytest.raises(NetworkRefused, match=reason):
        refuse_undefined_operators(model, operators)


def with_sparse_weight(model, sparse):
    model.graph.sparse_initializer.append(sparse)


def with_sparse_constant(model, sparse):
    constant = node("Constant", "", "w")
    kind = onnx.AttributeProto.SPARSE_TENSOR
    constant.attribute.add(name="sparse_value", type=kind, sparse_tensor=sparse)
    model.graph.node.insert(0, constant)


@pytest.mark.parametrize("add", [with_sparse_weight, with_sparse_constant])
def test_refuses_sparse_weights_by_name(add, tmp_path):
    path = tmp_path / "model.onnx"
    write_graph(path, [node("MatMul", "x w", "y")], [tensor("x", "b", 4)], [tensor("y", "b", 3)])
    values = onnx.numpy_helper.from_array(np.array([2, 3], np.float32), "w")
    places = onnx.numpy_helper.from_array(np.array([1, 11]))
    model = onnx.load(path)
    add(model, onnx.helper.make_sparse_tensor(values, places, [4, 3]))
    onnx.save(model, path)
    with pytest.raises(NetworkRefused, match=r"weight w of the network is sparse .*from_array"):
        read_inlined(path)


RANDOM = np.random.default_rng(0)
NAMED_FEED = {"x": RANDOM.standard_normal((3, 4)).astype(np.float32)}


def named_network(path, *, weight, product, bias, output="y"):
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
    model = named_network(tmp_path / "model.onnx", **names)
    before = OrtNetwork(tmp_path / "model.onnx").rows(NAMED_FEED)
    assert free_own_names(model)
    assert not free_own_names(model)
    assert np.array_equal(OrtNetwork(model.SerializeToString()).rows(NAMED_FEED), before)


def test_other_names_stay_and_one_that_callers_know_is_refused(tmp_path):
    path = tmp_path / "model.onnx"
    model = named_network(path, weight="fc1.weight", product="fc1", bias="b_bias", output="int8_0")
    before = model.SerializeToString()
    assert not free_own_names(model)
    assert model.SerializeToString() == before
    model = named_network(path, weight="w", product="p", bias="b", output="int8_0_scale")
    with pytest.raises(SourceFault, match=r"'int8_0_scale', .* export it with another name"):
        free_own_names(model)
