"""What NVIDIA's own parser and builder compile of a build, and the way out of what they refuse.

test_half_precision.py has the architectures of texts and images.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
from onnx import TensorProto, helper

from engine_build.errors import NetworkRefused
from engine_build.onnx_graph.onnx_file import leave_to_plugins
from engine_build.pipeline import NETWORK_STEPS, run_steps, steps_of
from engine_build.sources.export import export
from engine_build.sources.source_model import SourceModel
from tests.compile_check.builds import ROWS, assert_compiles, check_network
from tests.unit.engine_build.architectures import (
    CLASSES,
    VISION,
    images,
    write_text_checkpoint,
    write_vision_network,
)
from tests.unit.engine_build.graphs import node, scaled_network, tensor, write_graph
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import sample_texts, write_tensors_tree

pytestmark = pytest.mark.compile_check

X, Y = tensor("x", "batch", 8), tensor("y", "batch", 8)


@pytest.mark.parametrize("name", ["BERT", "DistilBERT", "RoBERTa"])
def test_exported_classifier_compiles(name, tmp_path):
    checkpoint = write_text_checkpoint(tmp_path / "checkpoint", name, classes=CLASSES)
    model = SourceModel(checkpoint, longest=16, task="text-classification")
    assert_compiles(export(model, sample_texts(20, seed=3), tmp_path, longest=16).path)


@pytest.mark.parametrize("name", VISION)
def test_quantized_vision_network_compiles(name, tmp_path):
    datasets = {
        "calibration": {"image": images(48, seed=0)},
        "validation": {"image": images(120, seed=1)},
    }
    network = write_vision_network(tmp_path / "given.onnx", name)
    root = write_tensors_tree(
        tmp_path / "root", network, datasets, precision="int8", metric="agreement"
    )
    tools = context(root, tmp_path / "out", store=None, runner=StandInRunner())
    with tools.work:
        assert_compiles(
            run_steps(tools, steps_of(tools, NETWORK_STEPS)).networks["int8"].path, ROWS
        )


def loop():
    """A loop whose carried tensor grows with every turn."""
    condition = tensor("again", kind=TensorProto.BOOL)
    carried, grown = tensor("carried", None, 8), tensor("grown", None, 8)
    body = helper.make_graph(
        [node("Identity", "go", "again"), node("Concat", "carried carried", "grown", axis=0)],
        "body",
        [tensor("turn", kind=TensorProto.INT64), tensor("go", kind=TensorProto.BOOL), carried],
        [condition, grown],
    )
    return helper.make_node("Loop", ["turns", "", "x"], ["y"], name="/decoder/Loop", body=body)


def dequantized(quantize):
    return [quantize, node("DequantizeLinear", "q s z", "y")]


IMAGE = tensor("x", "batch", 3, 3)
BYTES = [tensor(name, "batch", 8, kind=TensorProto.UINT8) for name in "xy"]
STRINGS = [tensor(name, "batch", kind=TensorProto.STRING) for name in "xy"]
ASYMMETRIC = {"s": np.array(0.1, dtype=np.float32), "z": np.array(5, dtype=np.int8)}
LOWER = {"name": "/text/StringNormalizer", "case_change_action": "LOWER"}
REFUSED = {
    "custom operator": (
        [node("Fancy", "x", "y", name="/block.0/Fancy", domain="com.example")],
        [X, Y],
        "engine.plugins",
    ),
    "no importer": (
        [node("Det", "x", "y", name="/layer/Det")],
        [IMAGE, tensor("y", "batch")],
        "engine.plugins",
    ),
    "unique values": (
        [node("Unique", "x", "y", name="/ids/Unique")],
        [tensor("x", "batch"), tensor("y", "found")],
        "use a mask",
    ),
    "strings": ([node("StringNormalizer", "x", "y", **LOWER)], STRINGS, "give the network numbers"),
    "integers of 8 bits": (
        [node("Add", "x x", "y", name="/pixels/Add")],
        BYTES,
        "cast its inputs to FP32",
    ),
    "list of tensors": (
        [
            node("SplitToSequence", "x", "parts", name="/heads/Split"),
            node("ConcatFromSequence", "parts", "y", axis=0),
        ],
        [X, tensor("y", "rows", 8)],
        "as one tensor",
    ),
    "quantized for another runtime": (
        dequantized(node("DynamicQuantizeLinear", "x", "q s z", name="/in/Dynamic")),
        [X, Y],
        "name the float network",
    ),
    "asymmetric": (
        dequantized(node("QuantizeLinear", "x s z", "q", name="/in/Quantize")),
        [X, Y],
        "every zero point 0",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_refuses_by_node_operator_origin_and_way_out(fault, tmp_path):
    nodes, (source, target), words = REFUSED[fault]
    options = ASYMMETRIC if fault == "asymmetric" else {}
    domains = sorted({node.domain for node in nodes} - {""})
    path = tmp_path / "model.onnx"
    write_graph(path, nodes, [source], [target], domains=domains, **options)
    with pytest.raises(NetworkRefused) as caught:
        check_network(path, ROWS)
    message, first = str(caught.value), nodes[0]
    origin = f"from module {first.name.split('/')[1]}, exported by tests 1"
    assert message.startswith("TensorRT-RTX 1.") and "float network: " in message
    assert f"node {first.name} (operator {first.op_type}; {origin})" in message
    assert words in message.partition("way out: ")[2]


TALL = [tensor(name, "batch", 3, "height") for name in "xy"]


@pytest.mark.parametrize(
    ("nodes", "tensors", "weights", "reason"),
    [
        (
            [loop()],
            [X, tensor("y", "rows", 8)],
            {"turns": np.array(3)},
            r"inside Loop /decoder/Loop \(operator \w+; from module decoder, exported by tests "
            r"1\).*way out: .*fixed number of steps",
        ),
        (
            [node("Relu", "x", "y")],
            TALL,
            {},
            r"input x has shape \[-1, 3, -1\], and no profile sets all its dynamic axes; way out",
        ),
        (
            [node("Add", "x w", "y", name="/positions/Add")],
            [X, Y],
            {"w": np.ones((1, 5), dtype=np.float32)},
            "/positions/Add.*way out: a size is fixed in the graph",
        ),
    ],
    ids=["loop whose tensors grow", "dynamic axis without sizes", "sizes that do not fit"],
)
def test_refuses_shapes_that_no_profile_fixes(tmp_path, nodes, tensors, weights, reason):
    source, target = tensors
    path = write_graph(tmp_path / "model.onnx", nodes, [source], [target], **weights)
    with pytest.raises(NetworkRefused, match=reason):
        check_network(path, ROWS)


def test_parser_takes_a_function_and_without_it_looks_for_a_plugin(tmp_path):
    network = scaled_network(tmp_path / "model.onnx", "Scale")
    assert_compiles(network, ROWS)
    leave_to_plugins(network, {"Scale"})
    with pytest.raises(NetworkRefused, match=r"node Scale .*Plugin not found"):
        check_network(network, ROWS)


def test_operators_that_tensorrt_supports_are_not_refused_but_named(tmp_path):
    nodes = [
        node("NonZero", "x", "places", name="/mask/NonZero"),
        node("Transpose", "places", "t"),
        node("GatherND", "x t", "y"),
    ]
    path = write_graph(tmp_path / "model.onnx", nodes, [X], [tensor("y", "found")])
    stream = io.StringIO()
    record = check_network(path, ROWS, stream)
    assert record.verdict == "fail" and record.reason.startswith("TensorRT-RTX refuses: node ")
    assert record.reason.endswith("; TensorRT's operator list supports NonZero")
    assert record.reason in stream.getvalue()
