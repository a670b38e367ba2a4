"""Dynamic quantization by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engine_build.errors import NothingForInt8
from engine_build.onnx_graph.data_file import data_file
from engine_build.onnx_graph.external_data import save_model
from engine_build.ort import OrtNetwork
from engine_build.quantization.dynamic import quantize_dynamically
from tests.unit.engine_build.quantization.graphs import chain


def test_shapes_that_contradict_the_network_are_dropped(tmp_path):
    model = chain("Relu")
    stale = helper.make_tensor_value_info(
        model.graph.node[0].output[0], TensorProto.FLOAT, ["batch", 64]
    )
    model.graph.value_info.append(stale)
    onnx.save(model, tmp_path / "float.onnx")
    quantize_dynamically(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    feed = {"x": np.ones((2, 4), dtype=np.float32)}
    rows = OrtNetwork(tmp_path / "int8.onnx").rows(feed)
    assert np.allclose(rows, OrtNetwork(tmp_path / "float.onnx").rows(feed), atol=0.1)


def test_refuses_a_network_that_onnx_cannot_infer(tmp_path):
    model = chain("Relu")
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[1].dim_value = 9
    onnx.save(model, tmp_path / "float.onnx")
    with pytest.raises(NothingForInt8, match="cannot quantize the network dynamically"):
        quantize_dynamically(tmp_path / "float.onnx", tmp_path / "int8.onnx")


def test_network_with_a_data_file_becomes_one_file_where_that_is_enough(tmp_path):
    model, feed = chain("Relu"), {"x": np.ones((2, 4), dtype=np.float32)}
    rows = np.random.default_rng(0).standard_normal((4, 512)).astype(np.float32)
    wide = helper.make_node("MatMul", [model.graph.output[0].name, "wide"], ["last"])
    model.graph.initializer.append(onnx.numpy_helper.from_array(rows, "wide"))
    model.graph.node.append(wide)
    model.graph.output[0].name = "last"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    save_model(model, tmp_path / "float.onnx", largest=100)
    assert data_file(tmp_path / "float.onnx") is not None
    (tmp_path / "int8").mkdir()
    quantize_dynamically(tmp_path / "float.onnx", tmp_path / "int8/model.onnx")
    assert [path.name for path in (tmp_path / "int8").iterdir()] == ["model.onnx"]
    before = OrtNetwork(tmp_path / "float.onnx").rows(feed)
    after = OrtNetwork(tmp_path / "int8/model.onnx").rows(feed)
    assert np.abs(after - before).max() < 0.05 * np.abs(before).max()
