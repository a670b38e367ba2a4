"""FP8 networks, made here or given, whose float part is FP16, compiled by TensorRT-RTX."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto

from engine_build.quantization.fp8 import (
    activation_maxima,
    at_fp8_opset,
    fp8_layers,
    quantize_fp8,
)
from engine_build.tensorrt.half_precision import write_half_precision
from tests.compile_check.builds import ROWS, TEXTS, assert_compiles
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.quantized import BIASED, quantized

pytestmark = pytest.mark.compile_check


def test_encoder_in_fp8_compiles(tmp_path):
    model = at_fp8_opset(graphs.transformer())
    layers = fp8_layers(model)
    assert len(layers) > 3
    maxima = activation_maxima(model, layers, [graphs.feed(graphs.texts(32, seed=1))])
    onnx.save(quantize_fp8(model, layers, maxima), tmp_path / "fp8.onnx")
    write_half_precision(tmp_path / "fp8.onnx", tmp_path / "half.onnx")
    assert_compiles(tmp_path / "half.onnx", TEXTS)


@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.FLOAT8E4M3FN])
def test_given_nodes_compile(tmp_path, kind):
    onnx.save(quantized(kind), tmp_path / "given.onnx")
    write_half_precision(tmp_path / "given.onnx", tmp_path / "half.onnx")
    assert_compiles(tmp_path / "half.onnx", ROWS)


def test_given_biases_in_int32_compile_once_they_are_floats(tmp_path):
    onnx.save(quantized(text=BIASED), tmp_path / "given.onnx")
    write_half_precision(tmp_path / "given.onnx", tmp_path / "half.onnx")
    assert_compiles(tmp_path / "half.onnx", ROWS)
