"""The message of a node that a compiler refuses."""

from __future__ import annotations

import onnx
import pytest

from engine_build.onnx_graph.onnx_file import read_model
from engine_build.onnx_graph.refusal import Fault, advice, explanation, origin
from tests.unit.engine_build.graphs import node, tensor, write_graph

DET = node("Det", "x", "y", name="/encoder/layer.0/attention/Det")
VALUES = ([tensor("x", "batch", 3, 3)], [tensor("y", "batch")])


@pytest.fixture
def network(tmp_path):
    return write_graph(tmp_path / "model.onnx", [DET], *VALUES)


def test_node_is_explained_with_module_exporter_and_way_out(network):
    fault = Fault(message="false", node=0, name=DET.name, operator="Det")
    assert explanation(network, [fault]) == (
        "node /encoder/layer.0/attention/Det (operator Det; from module encoder.layer.0.attention, "
        "exported by tests 1): the parser has no importer for it; way out: write it with other "
        "operators (another opset of the exporter may), or replace it in the ONNX file by standard "
        "ones (onnx-graphsurgeon), or name a TensorRT plugin that computes it (`engine.plugins`)"
    )


def test_node_is_found_by_its_output_or_in_the_message_and_the_first_ones_are_explained(
    network, tmp_path
):
    path = write_graph(tmp_path / "nameless.onnx", [node("Det", "x", "y")], *VALUES)
    text = explanation(path, [Fault(message="false", node=0, operator="Det")] * 5)
    assert text.startswith("node number 0 (operator Det; it makes tensor 'y', exported by tests 1)")
    assert text.endswith("; and 2 more")
    message = f"[shapeMachine] {DET.name}: dimension mismatch in profile 0"
    text = explanation(network, [Fault(message=message)])
    assert text.startswith(f"node {DET.name} (operator Det;") and "export with dynamic axes" in text


def test_newer_exporters_say_the_line_of_code(tmp_path):
    det = onnx.NodeProto()
    det.CopyFrom(DET)
    lines = ('File "run.py", line 1, in <module>', 'File "model.py", line 7', "return x.det()")
    det.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="\n  ".join(lines))
    model = read_model(write_graph(tmp_path / "model.onnx", [det], *VALUES))
    text = origin(model, model.graph.node[0])
    assert text == 'from File "model.py", line 7, exported by tests 1'


@pytest.mark.parametrize(
    ("operator", "message", "words"),
    [
        ("NonZero", "plugin creator not found", "use a mask"),
        ("StringNormalizer", "false", "give the network numbers"),
        ("SplitToSequence", "false", "as one tensor"),
        ("MatMulInteger", "false", "name the float network"),
        ("Loop", "anything", "fixed number of steps"),
        ("Add", "SUM requires inputs with type kFLOAT", "cast its inputs to FP32"),
        ("", "Unsupported ONNX data type: INT16", "cast to FP32"),
        ("QuantizeLinear", "Non-zero zero point is not supported", "every zero point 0"),
        ("Foo", "false", "engine.plugins"),
        ("MatMul", "Found unsupported input type of INT64", "cast its inputs to FP32 or FP16"),
        ("Transpose", "ITransposeLayer cannot be used with uint8 input", "cast it to FP32 before"),
    ],
)
def test_advice_follows_operator_and_message(operator, message, words):
    assert words in advice(operator, message)


def test_advice_for_another_domain_is_standard_operators():
    assert "domain 'com.example' is not ONNX's" in advice("Loop", "false", "com.example")
    assert "hummingbird-ml" in advice("TreeEnsembleRegressor", "false", "ai.onnx.ml")
