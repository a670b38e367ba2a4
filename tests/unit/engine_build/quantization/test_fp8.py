"""FP8 Q/DQ networks: their scales, weights and answers, and what stays in float."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from engine_build.errors import NothingForInt8, SourceFault
from engine_build.ort import OrtNetwork
from engine_build.quantization.fp8 import (
    LARGEST,
    activation_maxima,
    at_fp8_opset,
    fp8_layers,
    quantize_fp8,
    scales,
)
from engine_build.tensorrt.half_precision import half_precision

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((200, 32)).astype(np.float32)
TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 32] x) => (float[batch, 8] y) {
  first = Gemm(x, w, b)
  second = MatMul(x, v)
  sum = Add(first, second)
  hidden = Relu(sum)
  y = MatMul(hidden, head)
}"""


def network(columns=8):
    model = parser.parse_model(TEXT.replace("batch, 8", f"batch, {columns}"))
    shapes = {"w": (32, 64), "b": (64,), "v": (32, 64), "head": (64, columns)}
    for name, shape in shapes.items():
        values = RANDOM.standard_normal(shape).astype(np.float32) / 8
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return at_fp8_opset(model)


def quantized(model):
    layers = fp8_layers(model)
    return quantize_fp8(model, layers, activation_maxima(model, layers, [{"x": ROWS}]))


def tensors(model):
    return {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}


def test_layers_share_the_pair_of_their_activation_and_narrow_ones_stay_float():
    model = quantized(network())
    onnx.checker.check_model(model)
    operators = [node.op_type for node in model.graph.node]
    # One pair of x, a dequantized weight each; 8 columns are too few for the last.
    assert (operators.count("QuantizeLinear"), operators.count("DequantizeLinear")) == (1, 3)
    assert {"w", "v"}.isdisjoint(tensors(model)) and "head" in tensors(model)


def test_scales_are_maxima_by_448_and_weights_are_e4m3_by_column():
    source = network()
    weight = tensors(source)["v"]
    known = tensors(quantized(source))
    assert known["fp8_0_scale"] == np.float16(np.abs(ROWS).max() / LARGEST)
    steps, values = known["second_weight_scale"], known["second_weight_fp8"]
    assert np.array_equal(steps, (np.abs(weight).max(axis=0) / LARGEST).astype(np.float16))
    assert values.dtype == ml_dtypes.float8_e4m3fn
    error = np.abs(values.astype(np.float32) * steps - weight)
    # Three bits of mantissa: half a step is a sixteenth of the value.
    assert (error <= np.abs(weight) / 16 + steps * 2**-9).all()


@pytest.mark.parametrize("columns", [8, 24], ids=["float head", "Relu before an FP8 layer"])
def test_answers_are_near_those_of_the_float_network_and_differ(columns):
    """ONNX Runtime drops the Relu unless it is told not to, and answers something else."""
    source = network(columns)
    expected = OrtNetwork(source.SerializeToString()).rows({"x": ROWS})
    rows = OrtNetwork(quantized(source).SerializeToString()).rows({"x": ROWS})
    relative = np.linalg.norm(rows - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert 1e-3 < relative.mean() < 0.06


def test_half_precision_keeps_scales_to_the_bit_and_runs():
    model = quantized(network())
    half = half_precision(onnx.ModelProto.FromString(model.SerializeToString()))
    onnx.checker.check_model(half)
    known, halves = tensors(model), tensors(half)
    for name in ("fp8_0_scale", "first_weight_scale", "second_weight_scale"):
        assert halves[f"{name}_fp16"].dtype == np.float16
        assert np.array_equal(halves[f"{name}_fp16"].astype(np.float32), known[name])
    assert halves["second_weight_fp8"].dtype == ml_dtypes.float8_e4m3fn
    rows, exact = (OrtNetwork(item.SerializeToString()).rows({"x": ROWS}) for item in (half, model))
    assert np.linalg.norm(rows - exact) / np.linalg.norm(exact) < 0.01


@pytest.mark.parametrize("maximum", [0.0, 1e-9, 1.0, 6e4])
def test_scales_are_numbers_of_fp16_and_never_0(maximum):
    step = scales(np.array(maximum))
    assert step.dtype == np.float32 and step == np.float16(step) and step > 0


def test_older_opsets_are_raised_to_the_first_with_e4m3():
    assert network().opset_import[0].version == 19


def test_refuses_calibration_samples_that_overflow():
    model, rows = network(), ROWS.copy()
    rows[3, 4] = np.inf
    with pytest.raises(SourceFault, match="tensor x becomes NaN or Inf on the calibration"):
        activation_maxima(model, fp8_layers(model), [{"x": rows}])


def test_refuses_a_network_whose_opset_cannot_be_raised():
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 6]>
g (float[n, 4] x) => (float[n, 4] y) { y = Unknown(x) }""")
    with pytest.raises(NothingForInt8, match="opset 6 cannot be raised to opset 19"):
        at_fp8_opset(model)
