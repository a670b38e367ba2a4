"""What a network's own Q/DQ nodes say, and what no engine takes of them.

tests/unit/engine_build/test_quantized_sources.py builds of them.
"""

from __future__ import annotations

import pytest
from onnx import TensorProto, parser

from engine_build.errors import NetworkRefused
from engine_build.quantization.given_qdq import (
    GivenQuantization,
    given_quantization,
    kept_precision,
    refuse_for_tensorrt,
    refuse_scales_of_rows,
    share_facts,
)
from engine_build.quantization.layers import multiply_accumulates
from tests.unit.engine_build.quantized import BIASED, WEIGHT, quantized

INT8, UINT8, E4M3 = TensorProto.INT8, TensorProto.UINT8, TensorProto.FLOAT8E4M3FN


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


@pytest.mark.parametrize(
    ("kind", "value", "precision", "words"),
    [
        (INT8, 3, "int8", r"asymmetrically.*symmetrically to INT8.*on a CPU"),
        (UINT8, 0, "int8", "asymmetrically"),
        (UINT8, 128, "int8", "asymmetrically"),
        (E4M3, 0, "fp8", r"fp8, which needs compute capability 8.9.* is 8.6"),
    ],
)
def test_refuses_nodes_that_tensorrt_does_not_take(kind, value, precision, words):
    given = given_quantization(quantized(kind, value))
    with pytest.raises(NetworkRefused, match=words):
        refuse_for_tensorrt(given, precision, "8.6")
    for capability in ("8.9", "9.0", "12.0"):
        for taken, of_it in ((INT8, "int8"), (E4M3, "fp8")):
            refuse_for_tensorrt(given_quantization(quantized(taken)), of_it, capability)


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


def test_share_counts_products_of_two_dequantized_tensors_alone():
    model = quantized()
    facts = share_facts(model, multiply_accumulates(model, {"x": WEIGHT[:1]}))
    # 16 x 16 products of the first MatMul, 16 x 8 of the second, whose inputs are float.
    assert facts["int8_share_of_matmul_macs"] == round(256 / 384, 4)
    assert (facts["int8_layers"], facts["float_layers"]) == (1, ["y"])
