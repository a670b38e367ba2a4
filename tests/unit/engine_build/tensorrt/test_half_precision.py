"""FP16 written into networks, compared in ONNX Runtime with what they were."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from engine_build.errors import NetworkRefused
from engine_build.ort import OrtNetwork
from engine_build.tensorrt.graph_types import at_qdq_opset
from engine_build.tensorrt.half_precision import (
    half_precision,
    write_weakly_typed,
)
from tests.unit.engine_build.quantized import BIASED, quantized
from tests.unit.engine_build.tensorrt.gpu_machine import TINY

NORMALISATION = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 64] x) => (float[batch, 64] y)
<float[64, 64] w, float two = {2}, float eps = {1e-12}>
{
  hidden = MatMul(x, w)
  mean = ReduceMean<axes: ints = [-1]>(hidden)
  centred = Sub(hidden, mean)
  square = Pow(centred, two)
  variance = ReduceMean<axes: ints = [-1]>(square)
  padded = Add(variance, eps)
  deviation = Sqrt(padded)
  y = Div(centred, deviation)
}"""
MASKED = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 8] scores, int64[batch, 8] mask) => (float[batch, 8] y)
<float one = {1}, float never = {-3.4028235e38}>
{
  seen = Cast<to: int = 1>(mask)
  hidden = Sub(one, seen)
  added = Mul(hidden, never)
  twice = Add(added, added)
  masked = Add(scores, twice)
  y = Softmax<axis: int = -1>(masked)
}"""
QUANTIZED = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 16] x) => (float[batch, 4] y)
<float scale = {0.02}, int8 zero = {0}, int8[16, 4] w, float[4] scales, int8[4] zeros>
{
  q = QuantizeLinear(x, scale, zero)
  d = DequantizeLinear(q, scale, zero)
  v = DequantizeLinear<axis: int = 1>(w, scales, zeros)
  y = MatMul(d, v)
}"""
COUNTED = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, n] x) => (int64[1] half, float[batch, n] y)
<int64[1] axis = {1}, float share = {0.5}, int64[1] start = {1}, int64[1] end = {2}>
{
  sizes = Shape(x)
  size = Slice(sizes, start, end)
  wide = Cast<to: int = 1>(size)
  part = Mul(wide, share)
  half = Cast<to: int = 7>(part)
  y = Relu(x)
}"""


def parse_model(text, **weights):
    model = onnx.parser.parse_model(text)
    for name, values in weights.items():
        for weight in [weight for weight in model.graph.initializer if weight.name == name]:
            model.graph.initializer.remove(weight)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.checker.check_model(model)
    return model


def answer(model, **feed):
    return OrtNetwork(model.SerializeToString()).rows(feed)


def halved(model):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    half = half_precision(copy)
    onnx.checker.check_model(half, full_check=True)
    return half


def normal(*shape, scale=1.0):
    return (np.random.default_rng(0).standard_normal(shape) * scale).astype(np.float32)


def test_nothing_between_two_fp32_nodes_passes_through_fp16():
    half = halved(parse_model(NORMALISATION, w=normal(64, 64)))
    values = (*half.graph.input, *half.graph.output)
    assert {value.type.tensor_type.elem_type for value in values} == {TensorProto.FLOAT}
    casts = [node for node in half.graph.node if node.op_type == "Cast"]
    assert [(node.input[0], node.output[0]) for node in casts] == [
        ("x", "x_as_fp16"),
        ("hidden", "hidden_as_fp32"),
        ("mean", "mean_as_fp16"),
        ("centred", "centred_as_fp32"),
        ("deviation", "deviation_as_fp16"),
        ("y_fp16", "y"),
    ]


def test_masks_stay_finite_and_still_hide():
    model = parse_model(MASKED)
    scores, mask = normal(3, 8), np.tril(np.ones((3, 8), dtype=np.int64), 4)
    half = halved(model)
    never = next(weight for weight in half.graph.initializer if weight.name == "never_fp16")
    assert numpy_helper.to_array(never) == np.float16(-3e4)
    masked = answer(half, scores=scores, mask=mask)
    assert np.allclose(answer(model, scores=scores, mask=mask), masked, atol=2e-3)
    assert (masked[mask == 0] == 0).all()


def test_weakly_typed_network_has_the_same_finite_mask_and_is_otherwise_the_source(tmp_path):
    scores, mask = normal(3, 8), np.tril(np.ones((3, 8), dtype=np.int64), 4)
    onnx.save(parse_model(MASKED), tmp_path / "float.onnx")
    write_weakly_typed(tmp_path / "float.onnx", tmp_path / "weak.onnx")
    never = next(
        weight
        for weight in onnx.load(tmp_path / "weak.onnx").graph.initializer
        if weight.name == "never"
    )
    assert numpy_helper.to_array(never) == np.float32(-3e4)
    before, after = (OrtNetwork(tmp_path / f"{name}.onnx") for name in ("float", "weak"))
    feed = {"scores": scores, "mask": mask}
    assert np.array_equal(before.rows(feed), after.rows(feed))
    write_weakly_typed(TINY, tmp_path / "plain.onnx")
    assert (tmp_path / "plain.onnx").read_bytes() == TINY.read_bytes()


def test_int8_product_is_fp32_from_its_dequantize_nodes_to_the_cast_behind_it():
    """In FP16 a fused kernel of TensorRT gave NaN: its INT32 sums ended at 65504."""
    weights = np.random.default_rng(1).integers(-127, 128, (16, 4)).astype(np.int8)
    scales = {"scales": np.full(4, 0.01, dtype=np.float32), "zeros": np.zeros(4, dtype=np.int8)}
    text = QUANTIZED.replace("y = MatMul(d, v)", "m = MatMul(d, v)\n  y = Relu(m)")
    model, x = parse_model(text, w=weights, **scales), normal(5, 16)
    half = halved(model)
    kinds = {weight.name: weight.data_type for weight in half.graph.initializer}
    assert half.opset_import[0].version == 19
    assert kinds == {
        "scale_fp16": TensorProto.FLOAT16,
        "scale_of_fp16": TensorProto.FLOAT,
        "zero": TensorProto.INT8,
        "w": TensorProto.INT8,
        "scales": TensorProto.FLOAT,
        "zeros": TensorProto.INT8,
    }
    exact, rounded = (
        numpy_helper.to_array(weight)
        for name in ("scale_of_fp16", "scale_fp16")
        for weight in half.graph.initializer
        if weight.name == name
    )
    assert exact == rounded.astype(np.float32)
    product = next(node for node in half.graph.node if node.op_type == "MatMul")
    behind = next(node for node in half.graph.node if product.output[0] in node.input)
    assert behind.op_type == "Cast"
    assert np.allclose(answer(model, x=x), answer(half, x=x), atol=0.1)


def test_qdq_network_is_raised_to_its_opset_without_its_large_weights():
    """A network beyond 2 GiB fits into no message; its weights come back as they were."""
    weights = np.random.default_rng(1).integers(-127, 128, (16, 4)).astype(np.int8)
    scales = {"scales": np.full(4, 0.01, dtype=np.float32), "zeros": np.zeros(4, dtype=np.int8)}
    model, x = parse_model(QUANTIZED, w=weights, **scales), normal(5, 16)
    before = model.SerializeToString()
    raised, whole = at_qdq_opset(model, largest=8), at_qdq_opset(model)
    assert model.SerializeToString() == before
    assert raised.opset_import[0].version == 19
    assert raised.SerializeToString() == whole.SerializeToString()
    assert np.array_equal(answer(raised, x=x), answer(whole, x=x))


def test_what_becomes_an_integer_is_counted_in_fp32():
    half = OrtNetwork(halved(parse_model(COUNTED)).SerializeToString())
    feed = {"x": np.zeros((1, 4098), dtype=np.float32)}
    assert half.values(["half"], feed)["half"].tolist() == [2049]


def test_constants_beyond_fp16_keep_their_node_in_fp32():
    text = NORMALISATION.replace("Div(centred, deviation)", "Div(centred, far)").replace(
        "eps =", "far = {100000}, float eps ="
    )
    model, x = parse_model(text, w=normal(64, 64, scale=40)), normal(2, 64)
    assert np.allclose(answer(model, x=x), answer(halved(model), x=x), atol=5e-6)


UNKNOWN = """<ir_version: 8, opset_import: ["": 17, "mine": 1]>
g (float[2] x) => (float[2] y) { z = mine.Foo(x) y = Relu(z) }"""


OUTER = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 4] x, bool b) => (float[n, 4] y, float[n, 4] h) <float[4, 4] w, float[4] bias> {
  h = MatMul(x, w)
  z = If (b) <then_branch = a () => (float[n, 4] p) { p = Add(h, bias) },
              else_branch = c () => (float[n, 4] q) { q = Sub(h, x) }>
  y = MatMul(z, w)
}"""
RUNTIME_GELU = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
g (float[n, 4] x) => (float[n, 4] y) <float[4, 4] w> {
  h = MatMul(x, w)
  a = com.microsoft.Gelu(h)
  k = MatMul(a, w)
  c = com.microsoft.Gelu(k)
  y = Relu(c)
}"""
FUNCTION = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
g (float[n, 4] x) => (float[n, 4] y) <float[4, 4] w> { h = MatMul(x, w) y = own.Twice(h) }
<domain: "own", opset_import: ["": 17]> Twice (a) => (b) { b = Add(a, a) }"""
BOTH_WAYS = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 4] x) => (float[n, 4] h, float[n, 4] y) <float[4, 4] w> {
  h = MatMul(x, w)
  e = Exp(h)
  y = MatMul(e, w)
}"""


@pytest.mark.parametrize("branch", [True, False])
def test_branch_that_reads_outer_tensors_stays_fp32_and_answers_alike(branch):
    model = parse_model(OUTER, w=normal(4, 4), bias=normal(4))
    feed = {"x": normal(3, 4), "b": np.array(branch)}
    half = halved(model)
    assert np.allclose(answer(model, **feed), answer(half, **feed), atol=2e-2)
    weights = {tensor.name: tensor.data_type for tensor in half.graph.initializer}
    assert weights == {"w_fp16": TensorProto.FLOAT16, "bias": TensorProto.FLOAT}


ZEROS = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 4] x) => (float[n, 4] y) <float[4, 4] w> {
  s = Shape(x)
  k = ConstantOfShape(s)
  a = Add(x, k)
  y = MatMul(a, w)
}"""


@pytest.mark.parametrize("text", [RUNTIME_GELU, FUNCTION, BOTH_WAYS, ZEROS])
def test_network_of_other_operators_and_functions_answers_alike(text):
    model, x = parse_model(text, w=normal(4, 4)), normal(3, 4)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    half = half_precision(copy)
    assert np.allclose(answer(model, x=x), answer(half, x=x), atol=5e-2, rtol=2e-2)
    names = [node.name for node in half.graph.node if node.name]
    assert len(names) == len(set(names)) and not half.functions


def test_refuses_what_has_no_types():
    words = r"node z \(operator Foo\) gives z, whose type ONNX does not know"
    with pytest.raises(NetworkRefused, match=words):
        half_precision(onnx.parser.parse_model(UNKNOWN))


def test_biases_in_int32_become_constants_of_the_same_values():
    model = quantized(text=BIASED)
    half = half_precision(model)
    onnx.checker.check_model(half)
    kinds = {node.input[0] for node in half.graph.node if node.op_type == "DequantizeLinear"}
    assert "bias" not in kinds
    bias = next(item for item in half.graph.initializer if item.name == "bias_back")
    expected = np.arange(16) * np.float32(0.03)
    assert np.allclose(numpy_helper.to_array(bias), expected, rtol=1e-6)
    feed = {"x": np.ones((3, 16), dtype=np.float32)}
    rows = OrtNetwork(half.SerializeToString()).rows(feed)
    exact = OrtNetwork(quantized(text=BIASED).SerializeToString()).rows(feed)
    assert np.allclose(rows, exact, atol=5e-3)
