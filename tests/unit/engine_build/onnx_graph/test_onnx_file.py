"""ONNX files: read, explained, with their data beside them, and as they are compiled.

Their tables, their custom operators, and the names that a network may not have.
"""

from __future__ import annotations

import hashlib
import io

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.errors import NetworkRefused, SourceFault
from engine_build.log import Log
from engine_build.onnx_graph.external_data import (
    copy_network,
    external_files,
    external_names,
    load_network,
    network_sha256,
    onnx_sha256,
    pack_network,
    save_model,
    weight_bytes,
)
from engine_build.onnx_graph.network_store import DATA_NAME, Networks, data_file
from engine_build.onnx_graph.onnx_file import (
    free_own_names,
    inline_functions,
    leave_to_plugins,
    opset,
    opset_range,
    read_inlined,
    read_model,
    refuse_broken_weights,
    refuse_opset,
    refuse_undefined_operators,
    table_rows,
    tensor_records,
)
from engine_build.onnx_graph.refusal import Fault, advice, explanation
from engine_build.ort import OrtNetwork
from engine_build.store import FolderStore, sha256_of
from onboarding.manifest import TensorRecord
from onboarding.platform import serving_platforms
from tests.unit.engine_build.graphs import FEED, linear, node, scaled_network, tensor, write_graph
from tests.unit.engine_build.quantization import graphs


def test_file_is_read_with_its_records_and_opset(tmp_path):
    mask = np.triu(np.full((4, 3), -np.inf, dtype=np.float32), 1)
    model = read_model(linear(tmp_path / "model.onnx", weight=mask))
    assert opset(model) == 17
    record = TensorRecord(name="x", datatype="FP32", shape=(-1, 4))
    assert tensor_records(model.graph.input) == (record,)
    refuse_broken_weights(model)  # a mask of infinities is no broken weight
    model.graph.input[0].type.tensor_type.elem_type = 119
    assert tensor_records(model.graph.input)[0].datatype == "number 119"
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:24]
    with pytest.raises(SourceFault, match=r"weight w cannot be read \(.*export it again"):
        refuse_broken_weights(model)


def external():
    """A tensor whose bytes are said to lie in another file."""
    weight = onnx.numpy_helper.from_array(np.ones(3, dtype=np.float32), "c")
    onnx.external_data_helper.set_external_data(weight, location="../../etc/passwd")
    weight.ClearField("raw_data")
    return weight


def in_a_constant(weight):
    return [node("Constant", "", "c", value=weight), node("Add", "x c", "y")]


def in_a_branch(weight):
    output = onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [3])
    identity = node("Identity", weight.name, "b")
    branch = onnx.helper.make_graph([identity], "branch", [], [output], [weight])
    truth = onnx.numpy_helper.from_array(np.array(True))
    chosen = node("If", "t", "d", then_branch=branch, else_branch=branch)
    return [node("Constant", "", "t", value=truth), chosen, node("Add", "x d", "y")]


def write_rows(path, nodes):
    return write_graph(path, nodes, [tensor("x", "batch", 3)], [tensor("y", "batch", 3)])


@pytest.mark.parametrize("nodes", [in_a_constant, in_a_branch])
def test_refuses_constants_and_branches_in_other_files_or_with_no_number(nodes, tmp_path):
    path = write_rows(tmp_path / "model.onnx", nodes(external()))
    words = r"keeps weights in '\.\./\.\./etc/passwd', which is no file of its folder"
    with pytest.raises(SourceFault, match=words):
        read_model(path)
    weight = onnx.numpy_helper.from_array(np.array([1.0, np.inf, 2.0], dtype=np.float32), "c")
    with pytest.raises(SourceFault, match=r"weight c holds NaN"):
        refuse_broken_weights(read_model(write_rows(path, nodes(weight))))


PLATFORMS = serving_platforms()


def test_opsets_are_those_of_the_newest_release_not_after():
    ranges = {
        **dict.fromkeys(("10.16.1.11", "10.15.0"), (9, 24)),
        "10.3.0": (9, 20),
        **dict.fromkeys(("11.0.0", "11.4.0.106"), (9, 25)),
        "8.6": None,
    }
    assert {release: opset_range(release) for release in ranges} == ranges
    for platform in PLATFORMS.values():
        refuse_opset(17, platform)
    refuse_opset(26, PLATFORMS["triton-24.10-cpu"])
    refuse_opset(12, PLATFORMS["triton-24.10-cpu"])
    refuse_opset(13, PLATFORMS["triton-26.05"], may_be_int8=True)


ONES = {"x": np.ones((2, 64), dtype=np.float32)}
SMALL = 1000
"""Bytes that a network may have in one file."""


@pytest.fixture
def model(tmp_path):
    """Two weights of 16 KiB, and a shape that stays small."""
    rows = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    nodes = [node("MatMul", "x a", "h"), node("MatMul", "h b", "k"), node("Reshape", "k s", "y")]
    inputs, outputs = [tensor("x", "batch", 64)], [tensor("y", "batch", 64)]
    shape = np.array([-1, 64])
    path = write_graph(tmp_path / "one.onnx", nodes, inputs, outputs, a=rows[0], b=rows[1], s=shape)
    return onnx.load(path)


@pytest.fixture
def large(model, tmp_path):
    """That network with its weights beside it."""
    (tmp_path / "large").mkdir()
    save_model(model, tmp_path / "large/model.onnx", largest=SMALL)
    return tmp_path / "large/model.onnx"


def expected(model):
    return OrtNetwork(model.SerializeToString()).rows(ONES)


def test_network_beyond_the_limit_lies_in_two_files_that_answer_alike(model, large):
    before = model.SerializeToString()
    assert external_files(large) == (DATA_NAME,) and large.stat().st_size < 2000
    assert np.array_equal(OrtNetwork(large).rows(ONES), expected(model))
    assert model.SerializeToString() == before  # what is in memory stays whole
    assert read_model(large).graph.initializer[0].raw_data == model.graph.initializer[0].raw_data
    graph = read_model(large, weights=False).graph
    offsets = [entry.value for entry in graph.initializer[1].external_data if entry.key == "offset"]
    assert int(offsets[0]) % 4096 == 0 and not graph.initializer[2].external_data


def test_network_within_the_limit_is_one_file_and_is_loaded_whatever_its_size(model, tmp_path):
    path = tmp_path / "model.onnx"
    path.with_name(DATA_NAME).write_bytes(b"of an earlier network")
    save_model(model, path, largest=weight_bytes(model))
    assert path.read_bytes() == model.SerializeToString() and data_file(path) is None
    assert onnx_sha256(path) == network_sha256(path) == sha256_of(path)
    for largest in (SMALL, 1 << 20):
        assert np.array_equal(load_network(model, largest=largest).rows(ONES), expected(model))


@pytest.mark.parametrize("largest", [SMALL, 1 << 20])
def test_a_file_for_each_weight_becomes_one_for_all_or_none(largest, model, tmp_path):
    answer = expected(model)
    (tmp_path / "traced").mkdir()
    traced, path = tmp_path / "traced/model.onnx", tmp_path / "model.onnx"
    onnx.save(model, traced, save_as_external_data=True, all_tensors_to_one_file=False)
    assert len(external_files(traced)) == 2
    pack_network(traced, path, largest=largest)
    assert external_files(path) == ((DATA_NAME,) if largest == SMALL else ())
    assert not list(traced.parent.iterdir())
    assert np.array_equal(OrtNetwork(path).rows(ONES), answer)


def test_digests_hold_the_data(large):
    lines = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in (large, large.with_name(DATA_NAME))
    )
    assert onnx_sha256(large) == hashlib.sha256(lines.encode()).hexdigest()
    assert network_sha256(large) == onnx_sha256(large)
    with large.with_name(DATA_NAME).open("r+b") as file:
        file.write(b"\1")
    assert network_sha256(large) != hashlib.sha256(lines.encode()).hexdigest()


def test_copies_and_the_store_keep_the_data_and_miss_it_when_it_is_gone(model, large, tmp_path):
    (tmp_path / "plan").mkdir()
    copy_network(large, tmp_path / "plan/network.onnx")
    assert np.array_equal(OrtNetwork(tmp_path / "plan/network.onnx").rows(ONES), expected(model))
    store = FolderStore(tmp_path / "store")
    networks = Networks((store,), tmp_path / "copies", Log(io.StringIO()))
    networks.keep("key", graphs.network(large))
    names = networks.names("key")
    assert len(names) == 3 and names[-1].endswith("network.json")
    known = networks.find("float", "key")
    assert np.array_equal(OrtNetwork(known.path).rows(ONES), expected(model))
    store.path(next(name for name in names if name.endswith(DATA_NAME))).unlink()
    assert networks.find("float", "key") is None


@pytest.mark.parametrize("place", ["../../etc/passwd", "/etc/passwd", "a/../../b", ""])
def test_refuses_data_outside_the_folder(place, model):
    weight = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(weight, location=place)
    with pytest.raises(SourceFault, match=r"m.onnx keeps weights in .*, which is no file of its"):
        external_names("m.onnx", model)


def break_graph(large):
    model = onnx.load(large, load_external_data=False)
    model.graph.node[0].input[0] = "missing"
    onnx.save(model, large)


def cut_short(large):
    with large.with_name(DATA_NAME).open("r+b") as file:
        file.truncate(5000)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (break_graph, r"model.onnx is no valid ONNX file \(.*missing"),
        (cut_short, r"model.onnx.data ends before weight a does"),
        (
            lambda large: large.with_name(DATA_NAME).unlink(),
            r"model.onnx keeps weights in model.onnx.data, which is",
        ),
    ],
)
def test_refuses_a_broken_graph_and_data_that_is_cut_short_or_missing(change, words, large):
    change(large)
    with pytest.raises(SourceFault, match=words):
        read_model(large)


DET = node("Det", "x", "y", name="/encoder/layer.0/attention/Det")
VALUES = ([tensor("x", "batch", 3, 3)], [tensor("y", "batch")])


@pytest.fixture
def network(tmp_path):
    return write_graph(tmp_path / "model.onnx", [DET], *VALUES)


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


def test_advice_for_another_domain_is_standard_operators():
    assert "domain 'com.example' is not ONNX's" in advice("Loop", "false", "com.example")
    assert "hummingbird-ml" in advice("TreeEnsembleRegressor", "false", "ai.onnx.ml")


@pytest.mark.parametrize(
    ("change", "way_out"),
    [
        (lambda model: model.graph.output[0].type.tensor_type.ClearField("shape"), "infer_shapes"),
        (lambda model: setattr(model, "ir_version", 99), "set model.ir_version"),
        (lambda model: setattr(model, "ir_version", 3), "set model.ir_version to 4"),
        (lambda model: model.graph.node[0].input.__setitem__(0, "none"), "no node before it makes"),
    ],
)
def test_refuses_an_invalid_file_with_the_way_out_of_its_fault(change, way_out, tmp_path):
    path = linear(tmp_path / "model.onnx")
    model = onnx.load(path)
    change(model)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(SourceFault, match=way_out):
        read_model(path)


TABLES = {"table": np.ones((4, 3)), "smaller": np.ones((3, 2)), "wide": np.ones((2, 7))}
CONSTANT = node("Constant", "", "kept", value=numpy_helper.from_array(np.ones((9, 2))))
SCALES = {"scale": np.float32(1), "eight": np.ones((6, 2), np.int8)}


@pytest.mark.parametrize(
    ("nodes", "rows"),
    [
        ([node("Gather", "table n", "y")], {"n": 4}),
        ([node("Gather", "wide n", "y", axis=1)], {"n": 7}),
        ([CONSTANT, node("Gather", "kept n", "y")], {"n": 9}),
        ([node("Cast", "n", "i", to=6), node("Gather", "table i", "y")], {"n": 4}),
        ([node("Gather", "table n", "a"), node("Gather", "smaller n", "y")], {"n": 3}),
        ([node("Gather", "table n", "a"), node("Gather", "table m", "y")], {"n": 4, "m": 4}),
        ([node("DequantizeLinear", "eight scale", "t"), node("Gather", "t n", "y")], {"n": 6}),
        # Columns may belong to tables of their own, and what is counted is no index yet.
        ([node("Gather", "n one", "c", axis=1), node("Gather", "table c", "y")], {}),
        ([node("Add", "n one", "i"), node("Gather", "table i", "y")], {}),
        ([node("Gather", "m n", "y")], {}),
    ],
)
def test_table_of_an_input_is_the_smallest_that_it_reaches_unchanged(nodes, rows, tmp_path):
    inputs = [tensor(name, "batch", 2, kind=TensorProto.INT64) for name in ("n", "m")]
    weights = {**TABLES, **SCALES, "one": np.array([1])}
    path = write_graph(tmp_path / "x.onnx", nodes, inputs, [tensor("y", "batch", 3)], **weights)
    assert table_rows(onnx.load(path)) == rows


@pytest.fixture
def custom_network(tmp_path):
    return scaled_network(tmp_path / "model.onnx", "Scale", "Shift")


def test_functions_that_no_plugin_computes_are_inlined_and_the_others_run_and_leave(
    custom_network, tmp_path
):
    model = inline_functions(onnx.load(custom_network), {"Scale"})
    operators = [node.op_type for node in model.graph.node]
    assert "Scale" in operators and "Shift" not in operators
    assert [function.name for function in model.functions] == ["Scale"]
    assert not inline_functions(onnx.load(custom_network)).functions
    path = tmp_path / "kept.onnx"
    onnx.save(model, path)
    assert np.allclose(OrtNetwork(path).rows(FEED), OrtNetwork(custom_network).rows(FEED))
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


def with_branches(model):
    body = onnx.helper.make_graph(list(model.graph.node), "body", [], [])
    branch = onnx.helper.make_node("If", ["go"], ["y"], then_branch=body, else_branch=body)
    del model.graph.node[:]
    model.graph.node.append(branch)


@pytest.mark.parametrize(
    ("change", "operators", "reason"),
    [
        (lambda model: None, {"Scale", "Shift"}, None),
        (with_branches, {"Scale"}, None),
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
def test_refuses_operators_without_a_node_or_a_function(custom_network, change, operators, reason):
    model = onnx.load(custom_network)
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
