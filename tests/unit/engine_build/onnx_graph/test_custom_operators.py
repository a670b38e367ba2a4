"""Functions of an ONNX file: inlined, kept for plugins, and taken out for trtexec."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from engine_build.errors import NetworkRefused
from engine_build.onnx_graph.custom_operators import (
    inline_functions,
    leave_to_plugins,
    read_inlined,
    refuse_undefined_operators,
)
from engine_build.ort import OrtNetwork
from engine_build.quantization.dynamic import quantize_dynamically
from engine_build.tensorrt.half_precision import write_half_precision
from tests.unit.engine_build.custom import FEED, scaled_network
from tests.unit.engine_build.graphs import node, tensor, write_graph


@pytest.fixture
def network(tmp_path):
    return scaled_network(tmp_path / "model.onnx", "Scale", "Shift")


def test_functions_that_no_plugin_computes_are_inlined(network):
    model = inline_functions(onnx.load(network), {"Scale"})
    operators = [node.op_type for node in model.graph.node]
    assert "Scale" in operators and "Shift" not in operators
    assert [function.name for function in model.functions] == ["Scale"]
    assert not inline_functions(onnx.load(network)).functions


def test_functions_alone_are_what_onnx_runtime_runs(network, tmp_path):
    path = tmp_path / "kept.onnx"
    onnx.save(inline_functions(onnx.load(network), {"Scale"}), path)
    assert np.allclose(OrtNetwork(path).rows(FEED), OrtNetwork(network).rows(FEED))


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


def test_operators_of_plugins_stay_in_fp32_in_a_network_in_fp16(network, tmp_path):
    path = tmp_path / "half.onnx"
    write_half_precision(network, path, {"Scale", "Shift"})
    model = onnx.load(path)
    nodes = {output: node for node in model.graph.node for output in node.output}
    (scale,) = [node for node in model.graph.node if node.op_type == "Scale"]
    assert nodes[scale.input[0]].op_type == "Cast"
    assert onnx.TensorProto.FLOAT16 in {weight.data_type for weight in model.graph.initializer}
    assert np.allclose(OrtNetwork(path).rows(FEED), OrtNetwork(network).rows(FEED), atol=0.02)


def test_engine_of_a_cpu_runs_the_functions_in_int8_too(network, tmp_path):
    path = tmp_path / "dynamic.onnx"
    quantize_dynamically(network, path)
    assert "Scale" in {node.op_type for node in onnx.load(path).graph.node}
    assert np.allclose(OrtNetwork(path).rows(FEED), OrtNetwork(network).rows(FEED), atol=0.2)


def test_trtexec_gets_the_nodes_and_no_functions(network):
    leave_to_plugins(network, {"Scale"})
    model = onnx.load(network)
    assert [function.name for function in model.functions] == ["Shift"]
    assert "Scale" in {node.op_type for node in model.graph.node}


def test_operators_with_a_node_and_a_function_are_taken(network):
    refuse_undefined_operators(onnx.load(network), {"Scale", "Shift"})


def test_operator_inside_a_loop_is_found(network):
    model = onnx.load(network)
    body = onnx.helper.make_graph(list(model.graph.node), "body", [], [])
    branch = onnx.helper.make_node("If", ["go"], ["y"], then_branch=body, else_branch=body)
    del model.graph.node[:]
    model.graph.node.append(branch)
    refuse_undefined_operators(model, {"Scale"})


def test_refuses_an_operator_that_no_node_has(network):
    reason = "names operator Turn, which no node .*beyond ONNX's own: Scale, Shift. Correct"
    with pytest.raises(NetworkRefused, match=reason):
        refuse_undefined_operators(onnx.load(network), {"Turn"})


def test_refuses_an_operator_without_a_function(network):
    model = onnx.load(network)
    del model.functions[:]
    reason = r"operator Scale .*has no function .*make_function\('com.example', 'Scale'"
    with pytest.raises(NetworkRefused, match=reason):
        refuse_undefined_operators(model, {"Scale"})
