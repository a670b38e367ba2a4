"""ONNX files as float networks, and those that a task refuses."""

from __future__ import annotations

import io
import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from engine_build.errors import SourceFault
from engine_build.log import Log
from engine_build.options import Options
from engine_build.ort import OrtNetwork
from engine_build.request import build_request
from engine_build.sources.given_network import check_answers, read_network
from engine_build.store import sha256_of
from onboarding.manifest import TensorRecord
from tests.unit.engine_build.graphs import linear, node, tensor, write_graph
from tests.unit.engine_build.tiny import model, word_tokenizer, write_tree
from tests.unit.engine_build.trees import write_tensors_tree

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((5, 4)).astype(np.float32)


def request(root):
    options = Options(root=root, environment="desk", model="tiny", out=root / "out")
    return build_request(options, Log(io.StringIO()))


def float_network(path, request, tmp_path):
    (tmp_path / "float").mkdir()
    return check_answers(read_network(path, request, tmp_path / "float"), request)


def tensor_network(tmp_path, network, rows=ROWS, **settings):
    """The network of an ONNX file, as a build makes it."""
    root = write_tensors_tree(tmp_path / "root", network, {"validation": {"x": rows}}, **settings)
    return float_network(root / "networks/model.onnx", request(root), tmp_path)


def text_network(tmp_path, path, **changes):
    root = tmp_path / "root"
    root.mkdir()
    shutil.copyfile(path, root / "model.onnx")
    source = {"onnx": "model.onnx", "sha256": sha256_of(path), **changes.pop("source", {})}
    spec = model(source=source, **changes)
    return float_network(path, request(write_tree(root, spec)), tmp_path)


def test_network_of_arrays_has_its_own_records(tmp_path):
    path = linear(tmp_path / "model.onnx", outputs=[tensor("y", "batch", None)])
    network = tensor_network(tmp_path, path)
    assert [(record.name, record.shape) for record in network.inputs] == [("x", (-1, 4))]
    assert [(record.name, record.shape) for record in network.outputs] == [("y", (-1, 3))]
    assert (network.tokenizer, network.labels) == (None, None)
    assert (network.facts["exporter"], network.facts["opset"]) == ("tests 1", 17)


def test_input_that_is_looked_up_knows_its_tables_rows(tmp_path):
    nodes = [node("Gather", "table x", "rows"), node("ReduceSum", "rows one", "y", keepdims=0)]
    inputs, outputs = [tensor("x", "batch", 4, kind=TensorProto.INT64)], [tensor("y", "batch", 3)]
    weights = {"table": np.ones((7, 3), np.float32), "one": np.array([1])}
    path = write_graph(tmp_path / "model.onnx", nodes, inputs, outputs, **weights)
    network = tensor_network(tmp_path, path, np.full((5, 4), 6))
    assert [record.table_rows for record in network.inputs] == [7]
    # A network of the store is read back as it was recorded.
    assert TensorRecord.model_validate(network.inputs[0].model_dump()) == network.inputs[0]


def test_weights_that_are_listed_as_inputs_are_none(tmp_path):
    path = linear(tmp_path / "model.onnx", inputs=[tensor("x", "batch", 4), tensor("w", 4, 3)])
    model = onnx.load(path)
    model.ir_version = 3
    onnx.save(model, path)
    network = tensor_network(tmp_path, path)
    kept = onnx.load(network.path)
    assert network.input_names == ("x",) and [value.name for value in kept.graph.input] == ["x"]
    assert kept.ir_version == 4


def test_sequence_axis_is_dynamic_where_the_profile_has_one(tmp_path):
    values = [tensor("x", "batch", "time", 2)], [tensor("y", "batch", "time", 2)]
    path = write_graph(tmp_path / "model.onnx", [node("Relu", "x", "y")], *values)
    rows = RANDOM.standard_normal((5, 6, 2)).astype(np.float32)
    profile = {"batch": [1, 2, 4], "sequence": [4, 6, 8]}
    network = tensor_network(tmp_path, path, rows, profile=profile)
    assert network.outputs[0].shape == (-1, -1, 2)


@pytest.mark.parametrize(
    ("operator", "inputs", "outputs", "weights", "fault"),
    [
        (
            "Relu",
            ("batch", 3, "height", "width"),
            ("batch", 3, "height", "width"),
            {},
            r"dynamic in axis 2 \(height\), axis 3 \(width\); .* axes are the batch: export",
        ),
        (
            "Reshape",
            ("batch", 4),
            ("rows", 2),
            {"s": np.array([-1, 2])},
            "gives 2 rows for 1 samples; it must give one for each",
        ),
        (
            "Reshape",
            ("batch", 4),
            ("batch", 4),
            {"s": np.array([1, 4])},
            r"does not run at x \[3, 4\] \(.*; export it for every size of the profiles",
        ),
    ],
)
def test_refuses_rows_and_axes_that_are_not_served(
    operator, inputs, outputs, weights, fault, tmp_path
):
    nodes = [node(operator, " ".join(["x", *weights]), "y")]
    path = tmp_path / "model.onnx"
    write_graph(path, nodes, [tensor("x", *inputs)], [tensor("y", *outputs)], **weights)
    rows = ROWS if len(inputs) == 2 else RANDOM.standard_normal((5, 3, 4, 4)).astype(np.float32)
    with pytest.raises(SourceFault, match=fault):
        tensor_network(tmp_path, path, rows)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(TensorProto.DOUBLE, "FP64"), (TensorProto.INT16, "INT16"), (TensorProto.STRING, "BYTES")],
)
def test_refuses_a_datatype_that_tensorrt_does_not_take(kind, name, tmp_path):
    values = [tensor("x", "batch", 4, kind=kind)], [tensor("y", "batch", 4, kind=kind)]
    path = write_graph(tmp_path / "model.onnx", [node("Identity", "x", "y")], *values)
    # `check` reads no file in a bucket, whose datatypes the build alone sees.
    taken = linear(tmp_path / "taken.onnx")
    root = write_tensors_tree(tmp_path / "root", taken, {"validation": {"x": ROWS}})
    words = rf"'x' has datatype {name}, which TensorRT does not take as it is; allowed: FP32"
    with pytest.raises(SourceFault, match=words):
        float_network(path, request(root), tmp_path)


def text_graph(path, output=("y", "batch", 3)):
    """A mean of embeddings; a tokenizer lies beside it."""
    word_tokenizer().save(str(path.with_name("tokenizer.json")))
    table = RANDOM.standard_normal((40, 3)).astype(np.float32)
    inputs = [
        tensor(name, "batch", "sequence", kind=TensorProto.INT64)
        for name in ("input_ids", "attention_mask")
    ]
    nodes = [
        node("Gather", "table input_ids", "hidden"),
        node("ReduceMean", "hidden", "y", axes=[1], keepdims=0),
    ]
    return write_graph(path, nodes, inputs, [tensor(*output)], table=table)


def classifier(tmp_path, *classes):
    path = text_graph(tmp_path / "model.onnx")
    (tmp_path / "config.json").write_text(json.dumps({"id2label": dict(enumerate(classes))}))
    accuracy = {"dataset": "models/data/validation.txt", "metric": "agreement"}
    return text_network(tmp_path, path, task="text-classification", accuracy=accuracy)


def test_text_network_notes_the_files_beside_it(tmp_path):
    network = classifier(tmp_path, "calm", "glad", "sad")
    assert network.labels == ("calm", "glad", "sad")
    assert {"tokenizer.json sha256", "config.json sha256"} <= set(network.facts)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: text_graph(path), r"model.onnx has no tokenizer.json beside it"),
        (
            lambda path: text_graph(path, ("hidden", "batch", "sequence", 3)),
            r"gives hidden \[-1, -1, 3\]; a text network gives one output, \[batch, values\]",
        ),
        (
            linear,
            r"model.onnx takes x; a text network takes input_ids, attention_mask, token_type_ids",
        ),
    ],
)
def test_refuses_a_network_that_is_none_of_texts(write, words, tmp_path):
    path = write(tmp_path / "model.onnx")
    if "no tokenizer" in words:
        (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(SourceFault, match=words):
        text_network(tmp_path, path)


def test_refuses_class_names_that_are_not_the_networks(tmp_path):
    words = r"gives 3 scores, but config.json names 2 classes; they are not a pair"
    with pytest.raises(SourceFault, match=words):
        classifier(tmp_path, "calm", "glad")


def test_functions_of_the_file_become_nodes_and_data_one_file(tmp_path):
    path = linear(tmp_path / "plain.onnx", outputs=[tensor("z", "batch", 3)])
    file = onnx.load(path)
    opsets = [onnx.helper.make_opsetid("", 17)]
    twice = [node("Add", "a a", "b")]
    file.functions.append(onnx.helper.make_function("own", "Twice", ["a"], ["b"], twice, opsets))
    file.opset_import.append(onnx.helper.make_opsetid("own", 1))
    file.graph.node.append(node("Twice", "y", "z", domain="own"))
    (tmp_path / "given").mkdir()
    given = tmp_path / "given/model.onnx"
    onnx.save(file, given, save_as_external_data=True, location="w.bin", size_threshold=0)
    request_, folder = (
        request(write_tensors_tree(tmp_path / "root", path, {"validation": {"x": ROWS}})),
        tmp_path / "f",
    )
    folder.mkdir()
    network = read_network(given, request_, folder)
    graph = onnx.load(network.path).graph
    assert [item.op_type for item in graph.node] == ["MatMul", "Add"]
    assert [item.name for item in folder.iterdir()] == ["model.onnx"]
    x = np.ones((1, 4), dtype=np.float32)
    expected = 2 * x @ np.arange(12, dtype=np.float32).reshape(4, 3)
    assert np.array_equal(OrtNetwork(network.path).rows({"x": x}), expected)
