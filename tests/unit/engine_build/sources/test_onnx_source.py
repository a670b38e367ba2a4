"""ONNX files that are whole, and those that are not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from engine_build.errors import SourceFault
from engine_build.sources.onnx_source import opset, read_model, refuse_broken_weights, tensor_records
from onboarding.manifest import TensorRecord
from tests.unit.engine_build.graphs import linear, node, tensor, write_graph


def test_file_is_read_with_its_records_and_opset(tmp_path):
    model = read_model(linear(tmp_path / "model.onnx"))
    assert tensor_records(model.graph.input) == (TensorRecord(name="x", datatype="FP32", shape=(-1, 4)),)
    assert opset(model) == 17


def test_mask_of_infinities_is_no_broken_weight(tmp_path):
    mask = np.triu(np.full((4, 3), -np.inf, dtype=np.float32), 1)
    refuse_broken_weights(read_model(linear(tmp_path / "model.onnx", weight=mask)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_refuses_a_weight_that_is_no_number(value, tmp_path):
    weight = np.ones((4, 3), dtype=np.float32)
    weight[2, 1] = value
    with pytest.raises(SourceFault, match=r"weight w holds NaN or Inf; train or export the source again"):
        refuse_broken_weights(read_model(linear(tmp_path / "model.onnx", weight=weight)))


def test_refuses_a_constant_node_that_is_no_number(tmp_path):
    value = onnx.numpy_helper.from_array(np.array([1.0, np.nan, 2.0], dtype=np.float32))
    nodes = [node("Constant", "", "c", value=value), node("Add", "x c", "y")]
    path = write_graph(tmp_path / "model.onnx", nodes, [tensor("x", "batch", 3)], [tensor("y", "batch", 3)])
    with pytest.raises(SourceFault, match=r"weight c holds NaN"):
        refuse_broken_weights(read_model(path))


def test_refuses_weights_in_other_files(tmp_path):
    path = linear(tmp_path / "inner.onnx", weight=np.ones((4, 3), dtype=np.float32))
    outer = tmp_path / "model.onnx"
    onnx.save(onnx.load(path), outer, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    with pytest.raises(SourceFault, match=r"keeps 1 weights in other files \(model.onnx.data\).*save it as one file: onnx.save"):
        read_model(outer)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_refuses_a_truncated_file(share, tmp_path):
    path = linear(tmp_path / "model.onnx")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(SourceFault, match=r"model.onnx is no valid ONNX file \(.*cut short: export it again"):
        read_model(path)


def test_refuses_a_graph_that_the_checker_refuses(tmp_path):
    path = write_graph(tmp_path / "model.onnx", [node("Relu", "missing", "y")], [tensor("x", 4)], [tensor("y", 4)])
    with pytest.raises(SourceFault, match=r"model.onnx is no valid ONNX file \(.*missing"):
        read_model(path)
