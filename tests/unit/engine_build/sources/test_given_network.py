"""ONNX files as float networks: what a task takes, and what it refuses."""

from __future__ import annotations

import io
import shutil

import numpy as np
import pytest
from onnx import TensorProto

from engine_build.errors import NetworkRefused, SourceFault
from engine_build.log import Log
from engine_build.options import Options
from engine_build.request import build_request
from engine_build.sources.given_network import check_answers, read_network
from engine_build.store import sha256_of
from tests.unit.engine_build.graphs import linear, node, tensor, write_graph
from tests.unit.engine_build.tiny import model, word_tokenizer, write_tree
from tests.unit.engine_build.trees import write_tensors_tree

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((5, 4)).astype(np.float32)


def resolved(root):
    return build_request(
        Options(root=root, environment="desk", model="tiny", out=root / "out"), Log(io.StringIO())
    )


def made(tmp_path, network, rows=ROWS, *, name="x", **settings):
    """The network of an ONNX file, as a build makes it."""
    root = write_tensors_tree(tmp_path / "root", network, {"validation": {name: rows}}, **settings)
    wanted = resolved(root)
    folder = tmp_path / "float"
    folder.mkdir()
    return check_answers(read_network(root / "networks/model.onnx", wanted, folder), wanted)


def text_network(tmp_path, path, **changes):
    (tmp_path / "root").mkdir()
    shutil.copyfile(path, tmp_path / "root/model.onnx")
    spec = model(source={"onnx": "model.onnx", "sha256": sha256_of(path)}, **changes)
    wanted = resolved(write_tree(tmp_path / "root", spec))
    (tmp_path / "float").mkdir()
    return check_answers(read_network(path, wanted, tmp_path / "float"), wanted)


def test_network_of_arrays_has_its_own_records(tmp_path):
    network = made(tmp_path, linear(tmp_path / "model.onnx", outputs=[tensor("y", "batch", None)]))
    assert [(record.name, record.shape) for record in network.inputs] == [("x", (-1, 4))]
    assert [(record.name, record.shape) for record in network.outputs] == [("y", (-1, 3))]
    assert (network.tokenizer, network.labels) == (None, None)
    assert (network.facts["exporter"], network.facts["opset"]) == ("tests 1", 17)


def test_weights_that_are_listed_as_inputs_are_none(tmp_path):
    path = linear(tmp_path / "model.onnx", inputs=[tensor("x", "batch", 4), tensor("w", 4, 3)])
    assert made(tmp_path, path).input_names == ("x",)


def test_sequence_axis_is_dynamic_where_the_profile_has_one(tmp_path):
    values = [tensor("x", "batch", "time", 2)], [tensor("y", "batch", "time", 2)]
    path = write_graph(tmp_path / "model.onnx", [node("Relu", "x", "y")], *values)
    rows = RANDOM.standard_normal((5, 6, 2)).astype(np.float32)
    network = made(tmp_path, path, rows, profile={"batch": [1, 2, 4], "sequence": [4, 6, 8]})
    assert network.outputs[0].shape == (-1, -1, 2)


def test_refuses_dynamic_axes_that_no_profile_has(tmp_path):
    values = (
        [tensor("x", "batch", 3, "height", "width")],
        [tensor("y", "batch", 3, "height", "width")],
    )
    path = write_graph(tmp_path / "model.onnx", [node("Relu", "x", "y")], *values)
    words = (
        r"input 'x' is dynamic in axis 2 \(height\), axis 3 \(width\); an engine's dynamic axes "
        r"are the batch: export"
    )
    with pytest.raises(SourceFault, match=words):
        made(tmp_path, path, np.zeros((5, 3, 2, 2), dtype=np.float32))


def test_refuses_an_input_without_a_batch_axis(tmp_path):
    path = linear(tmp_path / "model.onnx", inputs=[tensor("x", 1, 4)], outputs=[tensor("y", 1, 3)])
    with pytest.raises(
        SourceFault,
        match=r"input 'x' has no batch axis \(its shape is \[1, 4\]\); export it with a dynamic "
        r"first",
    ):
        made(tmp_path, path)


def test_refuses_an_output_without_a_batch_axis(tmp_path):
    values = [tensor("x", "batch", 4)], [tensor("y")]
    path = write_graph(tmp_path / "model.onnx", [node("ReduceSum", "x", "y", keepdims=0)], *values)
    with pytest.raises(SourceFault, match=r"output 'y' has no batch axis \(its shape is \[\]\)"):
        made(tmp_path, path)


def test_refuses_an_output_whose_first_axis_is_no_batch(tmp_path):
    values = [tensor("x", "batch", 4)], [tensor("y", "rows", 2)]
    path = write_graph(
        tmp_path / "model.onnx", [node("Reshape", "x s", "y")], *values, s=np.array([-1, 2])
    )
    with pytest.raises(SourceFault, match=r"gives 2 rows for 1 samples"):
        made(tmp_path, path)


def test_refuses_a_network_that_gives_nan(tmp_path):
    path = write_graph(
        tmp_path / "model.onnx",
        [node("Log", "x", "y")],
        [tensor("x", "batch", 4)],
        [tensor("y", "batch", 4)],
    )
    with pytest.raises(SourceFault, match=r"gives 1 rows for 1 samples, \d of 4 values finite"):
        made(tmp_path, path, -np.ones((5, 4), dtype=np.float32))


def test_refuses_a_batch_that_was_fixed_in_the_graph(tmp_path):
    values = [tensor("x", "batch", 4)], [tensor("y", "batch", 4)]
    path = write_graph(
        tmp_path / "model.onnx", [node("Reshape", "x s", "y")], *values, s=np.array([1, 4])
    )
    with pytest.raises(
        SourceFault,
        match=r"does not run at x \[3, 4\] \(.*; export it for every size of the profiles",
    ):
        made(tmp_path, path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(TensorProto.DOUBLE, "FP64"), (TensorProto.INT16, "INT16"), (TensorProto.STRING, "BYTES")],
)
def test_refuses_a_datatype_that_tensorrt_does_not_take(kind, name, tmp_path):
    values = [tensor("x", "batch", 4, kind=kind)], [tensor("y", "batch", 4, kind=kind)]
    path = write_graph(tmp_path / "model.onnx", [node("Identity", "x", "y")], *values)
    with pytest.raises(
        SourceFault,
        match=rf"'x' has datatype {name}, which TensorRT does not take as it is; allowed: FP32",
    ):
        made(tmp_path, path)


def test_refuses_an_operator_of_another_domain(tmp_path):
    fancy = node("Fancy", "x", "y", name="/block/Fancy", domain="com.example")
    values = [tensor("x", "batch", 4)], [tensor("y", "batch", 4)]
    with pytest.raises(
        NetworkRefused,
        match=r"node /block/Fancy \(operator Fancy; from module block, exported by tests 1\)",
    ):
        made(
            tmp_path,
            write_graph(tmp_path / "model.onnx", [fancy], *values, domains=["com.example"]),
        )


def text_graph(path, *, outputs=None):
    table = RANDOM.standard_normal((40, 3)).astype(np.float32)
    ids = [
        tensor(name, "batch", "sequence", kind=TensorProto.INT64)
        for name in ("input_ids", "attention_mask")
    ]
    nodes = [
        node("Gather", "table input_ids", "hidden"),
        node("ReduceMean", "hidden", "y", axes=[1], keepdims=0),
    ]
    return write_graph(
        path, nodes, ids, [tensor("y", "batch", 3)] if outputs is None else outputs, table=table
    )


def test_text_network_notes_what_lies_beside_it(tmp_path):
    path = text_graph(tmp_path / "model.onnx")
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"id2label": {"0": "calm", "1": "glad", "2": "sad"}}')
    accuracy = {"dataset": "models/data/validation.txt", "metric": "agreement"}
    network = text_network(tmp_path, path, task="text-classification", accuracy=accuracy)
    assert network.labels == ("calm", "glad", "sad")
    assert {"tokenizer.json sha256", "config.json sha256"} <= set(network.facts)


def test_refuses_class_names_that_are_not_the_networks(tmp_path):
    path = text_graph(tmp_path / "model.onnx")
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"id2label": {"0": "calm", "1": "glad"}}')
    accuracy = {"dataset": "models/data/validation.txt", "metric": "agreement"}
    with pytest.raises(
        SourceFault,
        match=r"gives 3 scores, but the config.json beside it names 2 classes; they are not a pair",
    ):
        text_network(tmp_path, path, task="text-classification", accuracy=accuracy)


def test_refuses_a_text_network_without_a_tokenizer(tmp_path):
    with pytest.raises(SourceFault, match=r"model.onnx has no tokenizer.json beside it"):
        text_network(tmp_path, text_graph(tmp_path / "model.onnx"))


def test_refuses_a_text_network_that_gives_hidden_states(tmp_path):
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    path = text_graph(tmp_path / "model.onnx", outputs=[tensor("hidden", "batch", "sequence", 3)])
    with pytest.raises(
        SourceFault,
        match=r"gives hidden \[-1, -1, 3\]; a text network gives one output, \[batch, values\]",
    ):
        text_network(tmp_path, path)


def test_refuses_a_text_network_with_other_inputs(tmp_path):
    with pytest.raises(
        SourceFault,
        match=r"model.onnx takes x; a text network takes input_ids, attention_mask, token_type_ids",
    ):
        text_network(tmp_path, linear(tmp_path / "model.onnx"))
