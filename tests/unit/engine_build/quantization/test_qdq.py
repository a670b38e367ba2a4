"""Networks with Q/DQ nodes: written in INT8 and FP8, given, and quantized at run time."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from engine_build.errors import NetworkRefused, NothingForInt8, SourceFault
from engine_build.onnx_graph.external_data import save_model
from engine_build.onnx_graph.network_store import data_file
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
from engine_build.quantization.given_qdq import (
    GivenQuantization,
    given_quantization,
    kept_precision,
    refuse_scales_of_rows,
)
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.qdq import SwitchableNetwork, quantize_layers
from engine_build.steps.compile import quantize_dynamically
from engine_build.tensorrt.half_precision import half_precision
from tests.unit.engine_build.quantization.graphs import (
    KINDS,
    chain,
    constants,
    feed,
    ranges,
)
from tests.unit.engine_build.quantized import BIASED, quantized

INT8_SUMS = Path(__file__).resolve().parents[3] / "fixtures" / "int8_sums.onnx"
"""64 products of 127 and 127 in one sum."""


@pytest.fixture(params=KINDS)
def kind(request):
    """A network, the same with all layers in INT8, and a feed."""
    make, samples, _ = KINDS[request.param]
    model = make()
    limits = ranges(model, samples(64, seed=1))
    return (
        model,
        quantize_layers(model, quantizable_layers(model), limits),
        feed(samples(64, seed=2)),
    )


def qdq_nodes(model):
    return [node for node in model.graph.node if node.op_type in QDQ]


def rows(model, samples):
    return OrtNetwork(model.SerializeToString()).rows(samples)


def test_network_is_symmetric_by_output_channel_and_answers_closely_and_not_the_same(kind):
    model, qdq, samples = kind
    onnx.checker.check_model(qdq, full_check=True)
    values = constants(qdq)
    for node in qdq_nodes(qdq):
        _, scale, zero = (values.get(name) for name in node.input)
        assert zero.dtype == np.int8 and not zero.any()
        assert scale.dtype == np.float32 and (scale > 0).all()
    nodes = [node for node in qdq_nodes(qdq) if node.input[0] in values]
    assert len(nodes) == len(quantizable_layers(model))
    for node in nodes:
        axis = next(item.i for item in node.attribute if item.name == "axis")
        weight = values[node.input[0]]
        assert weight.dtype == np.int8
        assert values[node.input[1]].shape == (weight.shape[axis],)
        others = tuple(other for other in range(weight.ndim) if other != axis)
        # Rounded to make up for another row, the largest may be one count less.
        assert (np.abs(weight.astype(int)).max(axis=others) >= 126).all()
    assert not {layer.weight for layer in quantizable_layers(model)} & set(values)
    before, after = rows(model, samples), rows(qdq, samples)
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    assert ((before * after).sum(axis=1) / lengths).mean() > 0.99
    assert np.abs(before - after).max() > 1e-5


def test_refuses_an_opset_without_scales_by_channel():
    model = chain("Relu")
    model.opset_import[0].version = 12
    with pytest.raises(SourceFault, match="opset 12; INT8 by channel needs 13"):
        quantize_layers(model, quantizable_layers(model), {})


@pytest.mark.parametrize("kind", KINDS)
def test_switched_layers_answer_as_the_network_written_with_them(kind):
    make, samples, _ = KINDS[kind]
    model, values = make(), samples(16, seed=2)
    limits, layers = ranges(model, samples(32, seed=1)), quantizable_layers(model)
    switchable = SwitchableNetwork(model, layers, limits)
    # A network that no message can hold is loaded from files.
    from_files = SwitchableNetwork(model, layers, limits, largest=1000)
    for chosen in (layers, layers[::2], layers[-1:]):
        expected = rows(quantize_layers(model, chosen, limits), feed(values))
        nodes = [layer.node for layer in chosen]
        actual = switchable.rows([feed(values)], nodes)
        assert np.array_equal(from_files.rows([feed(values)], nodes), actual)
        # ONNX Runtime may add in another order, which turns a rounding here and there.
        assert np.abs(actual - expected).max() < 0.02 * np.abs(expected).max()
    # All switched off is the float network, and the rows of all feeds come in order.
    float_rows = switchable.rows([feed(values[:3]), feed(values[3:])], ())
    assert np.allclose(float_rows, rows(model, feed(values)), atol=1e-5)


RANDOM = np.random.default_rng(0)
SAMPLES = RANDOM.standard_normal((200, 32)).astype(np.float32)
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


def in_fp8(model):
    layers = fp8_layers(model)
    return quantize_fp8(model, layers, activation_maxima(model, layers, [{"x": SAMPLES}]))


def rows_of(model, rows=SAMPLES, **options):
    return OrtNetwork(model.SerializeToString(), **options).rows({"x": rows})


def test_scales_are_maxima_by_448_and_weights_are_e4m3_by_column():
    source = network()
    assert source.opset_import[0].version == 19, "the first opset with E4M3"
    model = in_fp8(source)
    onnx.checker.check_model(model)
    operators = [node.op_type for node in model.graph.node]
    # One pair of x, a dequantized weight each; 8 columns are too few for the last.
    assert (operators.count("QuantizeLinear"), operators.count("DequantizeLinear")) == (1, 3)
    weight, known = constants(source)["v"], constants(model)
    assert {"w", "v"}.isdisjoint(known) and "head" in known
    assert known["fp8_0_scale"] == np.float16(np.abs(SAMPLES).max() / LARGEST)
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
    expected, rows = rows_of(source), rows_of(in_fp8(source))
    relative = np.linalg.norm(rows - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert 1e-3 < relative.mean() < 0.06


def test_refuses_calibration_samples_that_overflow():
    model, rows = network(), SAMPLES.copy()
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
    model = quantized(E4M3)
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


@pytest.mark.parametrize("model", [quantized(E4M3), with_constant_weight()])
def test_casts_on_a_cpu_answer_as_the_nodes_do(model, tmp_path):
    onnx.save(model, tmp_path / "q.onnx")
    write_cpu_fp8(tmp_path / "q.onnx", tmp_path / "casts.onnx")
    assert not set(QDQ) & {n.op_type for n in onnx.load(tmp_path / "casts.onnx").graph.node}
    feed = {"x": np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32) * 4}
    rows, expected = (OrtNetwork(tmp_path / name).rows(feed) for name in ("casts.onnx", "q.onnx"))
    # Equal but for the order of sums: one step of E4M3 would be a thousand times as much.
    assert np.allclose(rows, expected, rtol=1e-5, atol=1e-6)
    assert len(np.unique(rows)) > 100


@pytest.mark.parametrize(
    ("written", "most"),
    [(lambda model: model, 1e-6), (with_casts, 1e-6), (half_precision, 2e-2)],
    ids=["as it is", "for servers on a CPU", "for a GPU"],
)
def test_model_optimizers_network_answers_as_the_reference_implementation(written, most):
    """fp8.onnx is of nvidia-modelopt 0.47.0, onnx 1.21.0 and ONNX Runtime 1.24.4, 2026-11-23.

    Random weights, a Conv of 24 channels, a MatMul and two Gemms, each behind a Relu, by
    `quantize(onnx_path, quantize_mode="fp8", calibration_method="max", calibration_eps=["cpu"],
    high_precision_dtype="fp32", calibration_shapes="x:8x24x4x4")`. Weights stay in float, behind a
    QuantizeLinear of their own with a scale an output channel.
    """
    path = Path(__file__).resolve().parents[3] / "fixtures/model_optimizer/fp8.onnx"
    assert given_quantization(onnx.load(path)).types == ("float8_e4m3fn",)
    x = np.random.default_rng(0).standard_normal((8, 24, 4, 4)).astype(np.float32)
    (expected,) = ReferenceEvaluator(onnx.load(path)).run(None, {"x": x})
    rows = rows_of(written(onnx.load(path)), x, fuses_qdq=False)
    assert np.linalg.norm(rows - expected) <= most * np.linalg.norm(expected)
    assert np.abs(rows).max() > 0.1


def test_refuses_several_scales_of_an_activation_on_a_cpu():
    model = quantized(E4M3)
    steps = numpy_helper.from_array(np.ones(16, dtype=np.float32), "step")
    next(item for item in model.graph.initializer if item.name == "step").CopyFrom(steps)
    with pytest.raises(NetworkRefused, match="16 scales of an activation; allowed on a CPU"):
        with_casts(model)


INT8, UINT8 = TensorProto.INT8, TensorProto.UINT8


@pytest.mark.parametrize(
    ("model", "types", "precision"),
    [
        (quantized(INT8), ("int8",), "int8"),
        (quantized(UINT8), ("int8", "uint8"), "int8"),
        (quantized(E4M3), ("float8_e4m3fn",), "fp8"),
        (quantized(text=BIASED), ("int8",), "int8"),
    ],
    ids=["int8", "uint8", "fp8", "a bias in int32"],
)
def test_types_of_the_nodes_say_the_precision(model, types, precision):
    given = given_quantization(model)
    assert (given.types, kept_precision(given)) == (types, precision)


def test_a_node_without_a_zero_point_quantizes_to_uint8_or_to_its_output_dtype():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["": 21]>
g (float[n, 4] x) => (float[n, 4] y) <float s = {0.1}> {
    q = QuantizeLinear(x, s)
    y = DequantizeLinear(q, s)
}""")
    assert given_quantization(model).types == ("uint8",)
    model.graph.node[0].attribute.add(name="output_dtype", type=2, i=INT8)
    given = given_quantization(model)
    assert (given.types, given.asymmetric) == (("int8",), None)


ROWS = """<ir_version: 9, opset_import: ["": 21]>
g (float[n, 2] x) => (float[n, 3] y)
<int8[2, 3] w = {1, 2, 3, 4, 5, 6}, float[2] rows = {1, 2}, float[3] columns = {1, 2, 3}> {
    d = DequantizeLinear<axis = AXIS>(w, SCALES)
    y = MatMul(x, d)
}"""


def test_refuses_scales_along_the_axis_that_a_product_sums_over():
    by_row = ROWS.replace("AXIS", "0").replace("SCALES", "rows")
    with pytest.raises(NetworkRefused, match=r"each index of axis 0, .*with axis 1 "):
        refuse_scales_of_rows(parser.parse_model(by_row))
    by_column = ROWS.replace("AXIS", "-1").replace("SCALES", "columns")
    refuse_scales_of_rows(parser.parse_model(by_column))


@pytest.mark.parametrize(
    "types", [("int4",), ("int16",), ("float8_e5m2",), ("float8_e4m3fn", "int8")]
)
def test_refuses_other_types_and_two_precisions_at_once(types):
    with pytest.raises(NetworkRefused, match=f"hold {' AND '.join(types).upper()}; allowed: INT8"):
        kept_precision(GivenQuantization(types=types, asymmetric=None))


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


def test_largest_sums_of_int8_are_exact():
    """Below VNNI, ONNX Runtime adds pairs of products in 16 bits, which saturate."""
    found = OrtNetwork(INT8_SUMS).rows({"x": np.full((2, 64), 127, np.float32)})
    assert np.allclose(found, 127 * 127 * 64, rtol=0.01)
