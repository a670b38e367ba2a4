"""Every promised architecture compiles with NVIDIA's own parser and builder.

What they refuse is told with a way out.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
from onnx import TensorProto, helper

from engine_build.errors import NetworkRefused
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network
from engine_build.pipeline import NETWORK_STEPS, run_steps
from engine_build.runner import ProcessRunner
from engine_build.sources.export import export
from engine_build.sources.source_model import SourceModel
from engine_build.steps.check import compile_checks
from onboarding.model_spec import OptimizationProfileSpec
from tests.unit.engine_build.architectures import (
    CLASSES,
    TEXT,
    VISION,
    images,
    write_text_checkpoint,
    write_vision_network,
)
from tests.unit.engine_build.graphs import node, tensor, write_graph
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import sentences
from tests.unit.engine_build.trees import write_tensors_tree

pytestmark = pytest.mark.compile_check

TEXTS = OptimizationProfileSpec(batch=(1, 2, 4), sequence=(4, 8, 16))
ROWS = OptimizationProfileSpec(batch=(1, 2, 4))
X, Y = tensor("x", "batch", 8), tensor("y", "batch", 8)


def check_networks(path, profile):
    log = Log(io.StringIO())
    network = Network(precision="float", path=path, inputs=(), outputs=(), facts={})
    return compile_checks([network], (profile,), ProcessRunner(log), log)


@pytest.mark.parametrize("name", TEXT)
def test_exported_text_network_compiles(name, tmp_path):
    checkpoint = write_text_checkpoint(tmp_path / "checkpoint", name, classes=CLASSES)
    network = export(
        SourceModel(checkpoint, longest=16, task="text-classification"),
        sentences(20, seed=3),
        tmp_path,
        longest=16,
    )
    assert [record.verdict for record in check_networks(network.path, TEXTS)] == ["pass"]


@pytest.mark.parametrize("name", VISION)
def test_vision_network_compiles(name, tmp_path):
    assert [
        record.verdict
        for record in check_networks(write_vision_network(tmp_path / "model.onnx", name), ROWS)
    ] == ["pass"]


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
        network = run_steps(tools, NETWORK_STEPS).networks["int8"]
        records = check_networks(network.path, ROWS)
    assert [record.verdict for record in records] == ["pass"]


def loop():
    """A loop whose carried tensor grows with every turn."""
    condition, grown = tensor("again", kind=TensorProto.BOOL), tensor("grown", None, 8)
    body = helper.make_graph(
        [node("Identity", "go", "again"), node("Concat", "carried carried", "grown", axis=0)],
        "body",
        [
            tensor("turn", kind=TensorProto.INT64),
            tensor("go", kind=TensorProto.BOOL),
            tensor("carried", None, 8),
        ],
        [condition, grown],
    )
    return helper.make_node("Loop", ["turns", "", "x"], ["y"], name="/decoder/Loop", body=body)


REFUSED = {
    "custom operator": (
        [node("Fancy", "x", "y", name="/block.0/Fancy", domain="com.example")],
        X,
        Y,
        {},
        "plugins are not loaded",
    ),
    "no importer": (
        [node("Det", "x", "y", name="/layer/Det")],
        tensor("x", "batch", 3, 3),
        tensor("y", "batch"),
        {},
        "plugins are not loaded",
    ),
    "unique values": (
        [node("Unique", "x", "y", name="/ids/Unique")],
        tensor("x", "batch"),
        tensor("y", "found"),
        {},
        "use a mask",
    ),
    "strings": (
        [
            node(
                "StringNormalizer",
                "x",
                "y",
                name="/text/StringNormalizer",
                case_change_action="LOWER",
            )
        ],
        tensor("x", "batch", kind=TensorProto.STRING),
        tensor("y", "batch", kind=TensorProto.STRING),
        {},
        "give the network numbers",
    ),
    "integers of 8 bits": (
        [node("Add", "x x", "y", name="/pixels/Add")],
        tensor("x", "batch", 8, kind=TensorProto.UINT8),
        tensor("y", "batch", 8, kind=TensorProto.UINT8),
        {},
        "cast its inputs to FP32",
    ),
    "list of tensors": (
        [
            node("SplitToSequence", "x", "parts", name="/heads/Split"),
            node("ConcatFromSequence", "parts", "y", axis=0),
        ],
        X,
        tensor("y", "rows", 8),
        {},
        "as one tensor",
    ),
    "quantized for another runtime": (
        [
            node("DynamicQuantizeLinear", "x", "q s z", name="/in/Dynamic"),
            node("DequantizeLinear", "q s z", "y"),
        ],
        X,
        Y,
        {},
        "name the float network",
    ),
    "asymmetric": (
        [
            node("QuantizeLinear", "x s z", "q", name="/in/Quantize"),
            node("DequantizeLinear", "q s z", "y"),
        ],
        X,
        Y,
        {"s": np.array(0.1, dtype=np.float32), "z": np.array(5, dtype=np.int8)},
        "every zero point 0",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_refuses_by_node_operator_origin_and_way_out(fault, tmp_path):
    nodes, takes, gives, weights, words = REFUSED[fault]
    domains = {each.domain for each in nodes} - {""}
    path = write_graph(
        tmp_path / "model.onnx", nodes, [takes], [gives], domains=sorted(domains), **weights
    )
    with pytest.raises(NetworkRefused) as caught:
        check_networks(path, ROWS)
    said = str(caught.value)
    module = nodes[0].name.split("/")[1]
    assert said.startswith("TensorRT-RTX 1.")
    assert (
        f"node {nodes[0].name} (operator {nodes[0].op_type}; from module {module}, exported by "
        "tests 1)" in said
    )
    assert words in said.partition("way out: ")[2]


def test_refuses_a_loop_whose_tensors_grow(tmp_path):
    path = write_graph(
        tmp_path / "model.onnx", [loop()], [X], [tensor("y", "rows", 8)], turns=np.array(3)
    )
    words = (
        r"inside Loop /decoder/Loop \(operator \w+; from module decoder, exported by tests "
        r"1\).*way out: .*fixed number of steps"
    )
    with pytest.raises(NetworkRefused, match=words):
        check_networks(path, ROWS)


def test_refuses_a_dynamic_axis_that_no_profile_sets(tmp_path):
    values = [tensor("x", "batch", 3, "height")], [tensor("y", "batch", 3, "height")]
    path = write_graph(tmp_path / "model.onnx", [node("Relu", "x", "y")], *values)
    with pytest.raises(
        NetworkRefused,
        match=r"input x has shape \[-1, 3, -1\], and no profile sets all its dynamic axes; way out",
    ):
        check_networks(path, ROWS)


def test_refuses_sizes_that_do_not_fit(tmp_path):
    weight = np.ones((1, 5), dtype=np.float32)
    path = write_graph(
        tmp_path / "model.onnx",
        [node("Add", "x w", "y", name="/positions/Add")],
        [X],
        [Y],
        w=weight,
    )
    with pytest.raises(
        NetworkRefused, match=r"/positions/Add.*way out: a size is fixed in the graph"
    ):
        check_networks(path, ROWS)


def test_operators_that_tensorrt_supports_are_not_refused_but_named(tmp_path):
    nodes = [
        node("NonZero", "x", "places", name="/mask/NonZero"),
        node("Transpose", "places", "t"),
        node("GatherND", "x t", "y"),
    ]
    path = write_graph(tmp_path / "model.onnx", nodes, [X], [tensor("y", "found")])
    output = io.StringIO()
    network = Network(precision="float", path=path, inputs=(), outputs=(), facts={})
    log = Log(output)
    assert compile_checks([network], (ROWS,), ProcessRunner(log), log) == ()
    assert "lacks NonZero, which TensorRT itself supports" in output.getvalue()
