"""ONNX files, and faults that test_bad_input does not build."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from engine_build.errors import SourceFault
from engine_build.onnx_graph.external_data import external_names
from engine_build.onnx_graph.onnx_file import (
    opset,
    opset_range,
    read_model,
    refuse_broken_weights,
    refuse_opset,
    tensor_records,
)
from onboarding.manifest import TensorRecord
from onboarding.platform import serving_platforms
from tests.unit.engine_build.graphs import linear, node, tensor, write_graph


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


def external(name="c"):
    """A tensor whose bytes are said to lie in another file."""
    weight = onnx.numpy_helper.from_array(np.ones(3, dtype=np.float32), name)
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


def test_refuses_a_functions_constant_in_another_file():
    function = onnx.helper.make_function(
        "own", "F", ["x"], ["y"], in_a_constant(external()), [onnx.helper.make_opsetid("", 17)]
    )
    graph = onnx.helper.make_graph(
        [node("F", "x", "y", domain="own")], "g", [tensor("x", 3)], [tensor("y", 3)]
    )
    model = onnx.helper.make_model(graph, functions=[function])
    with pytest.raises(SourceFault, match=r"m.onnx keeps weights in '../../etc/passwd'"):
        external_names("m.onnx", model)


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
