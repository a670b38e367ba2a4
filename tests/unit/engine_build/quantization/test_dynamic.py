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


@pytest.mark.parametrize("largest", [100, 1 << 20], ids=["with a data file", "one file"])
def test_network_becomes_one_file_without_the_shapes_that_contradict_it(largest, tmp_path):
    model, feed = chain("Relu"), {"x": np.ones((2, 4), dtype=np.float32)}
    stale = model.graph.node[0].output[0]
    model.graph.value_info.append(
        helper.make_tensor_value_info(stale, TensorProto.FLOAT, ["batch", 64])
    )
    rows = np.random.default_rng(0).standard_normal((4, 512)).astype(np.float32)
    wide = helper.make_node("MatMul", [model.graph.output[0].name, "wide"], ["last"])
    model.graph.initializer.append(onnx.numpy_helper.from_array(rows, "wide"))
    model.graph.node.append(wide)
    model.graph.output[0].name = "last"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    save_model(model, tmp_path / "float.onnx", largest=largest)
    assert (data_file(tmp_path / "float.onnx") is not None) == (largest == 100)
    (tmp_path / "int8").mkdir()
    quantize_dynamically(tmp_path / "float.onnx", tmp_path / "int8/model.onnx")
    assert [path.name for path in (tmp_path / "int8").iterdir()] == ["model.onnx"]
    before = OrtNetwork(tmp_path / "float.onnx").rows(feed)
    after = OrtNetwork(tmp_path / "int8/model.onnx").rows(feed)
    assert np.abs(after - before).max() < 0.05 * np.abs(before).max()


def test_refuses_a_network_that_onnx_cannot_infer(tmp_path):
    model = chain("Relu")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 9
    onnx.save(model, tmp_path / "float.onnx")
    with pytest.raises(NothingForInt8, match="cannot quantize the network dynamically"):
        quantize_dynamically(tmp_path / "float.onnx", tmp_path / "int8.onnx")
