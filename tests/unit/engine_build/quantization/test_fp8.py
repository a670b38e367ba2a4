"""FP8 Q/DQ networks: scales, weights and answers, on a GPU in FP16 and on a CPU with casts.

fixtures/model_optimizer/fp8.onnx is of nvidia-modelopt 0.47.0, onnx 1.21.0 and ONNX Runtime 1.24.4,
2026-11-23: random weights, a Conv of 24 channels, a MatMul and two Gemms, each behind a Relu, by
`quantize(onnx_path, quantize_mode="fp8", calibration_method="max", calibration_eps=["cpu"],
high_precision_dtype="fp32", calibration_shapes="x:8x24x4x4")`. Weights stay in float, behind a
QuantizeLinear of their own with a scale an output channel.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from engine_build.errors import NetworkRefused, NothingForInt8, SourceFault
from engine_build.onnx_graph.onnx_file import QDQ
from engine_build.ort import OrtNetwork
from engine_build.quantization.fp8 import (
    LARGEST,
    activation_maxima,
    at_fp8_opset,
    fp8_layers,
    quantize_fp8,
    scales,
    with_casts,
    write_cpu_fp8,
)
from engine_build.quantization.given_qdq import given_quantization
from engine_build.tensorrt.half_precision import half_precision
from tests.unit.engine_build import quantized as given
from tests.unit.engine_build.quantization.graphs import constants

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


def rows_of(model, rows=ROWS, **options):
    return OrtNetwork(model.SerializeToString(), **options).rows({"x": rows})


def test_scales_are_maxima_by_448_and_weights_are_e4m3_by_column():
    source = network()
    assert source.opset_import[0].version == 19, "the first opset with E4M3"
    model = quantized(source)
    onnx.checker.check_model(model)
    operators = [node.op_type for node in model.graph.node]
    # One pair of x, a dequantized weight each; 8 columns are too few for the last.
    assert (operators.count("QuantizeLinear"), operators.count("DequantizeLinear")) == (1, 3)
    weight, known = constants(source)["v"], constants(model)
    assert {"w", "v"}.isdisjoint(known) and "head" in known
    assert known["fp8_0_scale"] == np.float16(np.abs(ROWS).max() / LARGEST)
    steps, values = known["second_weight_scale"], known["second_weight_fp8"]
    assert np.array_equal(steps, (np.abs(weight).max(axis=0) / LARGEST).astype(np.float16))
    assert values.dtype == ml_dtypes.float8_e4m3fn
    error = np.abs(values.astype(np.float32) * steps - weight)
    # Three bits of mantissa: half a step is a sixteenth of the value.
    assert (error <= np.abs(weight) / 16 + steps * 2**-9).all()
    for maximum in (0.0, 1e-9, 1.0, 6e4):
        step = scales(np.array(maximum))
        assert step.dtype == np.float32 and step == np.float16(step) and step > 0


@pytest.mark.parametrize("columns", [8, 24], ids=["float head", "Relu before an FP8 layer"])
def test_answers_are_near_those_of_the_float_network_and_differ(columns):
    """ONNX Runtime drops the Relu unless it is told not to, and answers something else."""
    source = network(columns)
    expected, rows = rows_of(source), rows_of(quantized(source))
    relative = np.linalg.norm(rows - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert 1e-3 < relative.mean() < 0.06


def test_half_precision_keeps_scales_to_the_bit_and_runs():
    model = quantized(network())
    half = half_precision(onnx.ModelProto.FromString(model.SerializeToString()))
    onnx.checker.check_model(half)
    known, halves = constants(model), constants(half)
    for name in ("fp8_0_scale", "first_weight_scale", "second_weight_scale"):
        assert halves[f"{name}_fp16"].dtype == np.float16
        assert np.array_equal(halves[f"{name}_fp16"].astype(np.float32), known[name])
    assert halves["second_weight_fp8"].dtype == ml_dtypes.float8_e4m3fn
    exact = rows_of(model)
    assert np.linalg.norm(rows_of(half) - exact) / np.linalg.norm(exact) < 0.01


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


E4M3 = TensorProto.FLOAT8E4M3FN


def with_constant_weight():
    """A given network whose first weight is kept in E4M3, a step by column."""
    model = given.quantized(E4M3)
    node = next(node for node in model.graph.node if node.output[0] == "weights")
    model.graph.node.remove(node)
    values = np.random.default_rng(2).integers(0, 0x70, (16, 16)).astype(np.uint8)
    weight = helper.make_tensor("weights", E4M3, [16, 16], values.tobytes(), raw=True)
    steps = numpy_helper.from_array(np.linspace(0.001, 0.01, 16, dtype=np.float32), "steps")
    back = next(node for node in model.graph.node if node.output[0] == "weights_back")
    back.input[1:] = ["steps"]
    back.attribute.append(helper.make_attribute("axis", 1))
    model.graph.initializer.extend([weight, steps])
    return model


@pytest.mark.parametrize("model", [given.quantized(E4M3), with_constant_weight()])
def test_casts_on_a_cpu_answer_as_the_nodes_do(model, tmp_path):
    onnx.save(model, tmp_path / "q.onnx")
    write_cpu_fp8(tmp_path / "q.onnx", tmp_path / "casts.onnx")
    assert not set(QDQ) & {n.op_type for n in onnx.load(tmp_path / "casts.onnx").graph.node}
    feed = {"x": np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32) * 4}
    rows, expected = (OrtNetwork(tmp_path / name).rows(feed) for name in ("casts.onnx", "q.onnx"))
    # Equal but for the order of sums: one step of E4M3 would be a thousand times as much.
    assert np.allclose(rows, expected, rtol=1e-5, atol=1e-6)
    assert len(np.unique(rows)) > 100


def test_refuses_several_scales_of_an_activation_on_a_cpu():
    model = given.quantized(E4M3)
    steps = numpy_helper.from_array(np.ones(16, dtype=np.float32), "step")
    next(item for item in model.graph.initializer if item.name == "step").CopyFrom(steps)
    with pytest.raises(NetworkRefused, match="16 scales of an activation; allowed on a CPU"):
        with_casts(model)


@pytest.mark.parametrize(
    ("written", "most"),
    [(lambda model: model, 1e-6), (with_casts, 1e-6), (half_precision, 2e-2)],
    ids=["as it is", "for servers on a CPU", "for a GPU"],
)
def test_model_optimizers_network_answers_as_the_reference_implementation(written, most):
    path = Path(__file__).resolve().parents[3] / "fixtures/model_optimizer/fp8.onnx"
    assert given_quantization(onnx.load(path)).types == ("float8_e4m3fn",)
    x = np.random.default_rng(0).standard_normal((8, 24, 4, 4)).astype(np.float32)
    (expected,) = ReferenceEvaluator(onnx.load(path)).run(None, {"x": x})
    rows = rows_of(written(onnx.load(path)), x, fuses_qdq=False)
    assert np.linalg.norm(rows - expected) <= most * np.linalg.norm(expected)
    assert np.abs(rows).max() > 0.1
