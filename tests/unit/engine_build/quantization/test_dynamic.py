"""Dynamic quantization by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engine_build.errors import NothingForInt8
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
