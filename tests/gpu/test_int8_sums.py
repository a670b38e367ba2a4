"""Sums beyond FP16 inside of kernels: INT8 products, their biases, LayerNormalization.

An INT8 product alone is right even where all is declared FP16; fused with what follows in a BERT it
gives NaN (docs/decisions, 43). What the FP16 product does is recorded; that of our writer is right.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.ort import OrtNetwork
from engine_build.tensorrt.half_precision import half_precision
from tests.gpu.compiled import plan_rows
from tests.gpu.test_trtexec import pytestmark  # noqa: F401

INNER, COLUMNS, ROWS = 384, 384, 64
STEP, WEIGHT_STEP = 2.0**-7, 2.0**-12
"""Scales that are exact in FP16."""
UNIT = STEP * WEIGHT_STEP
SUMS = np.linspace(60_000, 200_000, COLUMNS)
BIASES = np.geomspace(1_000, 3_000_000, COLUMNS)
"""In units of the sums."""


def product(sums: np.ndarray, biases: np.ndarray, kind: int) -> onnx.ModelProto:
    """x -> Q/DQ -> MatMul -> bias; each column gives its own sum for an x of 127 steps."""
    weights = np.zeros((INNER, COLUMNS), dtype=np.int8)
    for column, total in enumerate(sums):
        full, rest = divmod(int(total), 127 * 127)
        weights[:full, column] = 127
        weights[full, column] = rest // 127
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    constants = {
        "step": np.array(STEP, dtype=dtype),
        "zero": np.array(0, dtype=np.int8),
        "weights": weights,
        "steps": np.full(COLUMNS, WEIGHT_STEP, dtype=dtype),
        "zeros": np.zeros(COLUMNS, dtype=np.int8),
        "bias": (biases * UNIT).astype(dtype),
    }
    nodes = [
        helper.make_node("Cast", ["x"], ["typed"], to=kind),
        helper.make_node("QuantizeLinear", ["typed", "step", "zero"], ["quantized"]),
        helper.make_node("DequantizeLinear", ["quantized", "step", "zero"], ["activation"]),
        helper.make_node("DequantizeLinear", ["weights", "steps", "zeros"], ["weight"], axis=1),
        helper.make_node("MatMul", ["activation", "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["y"], to=TensorProto.FLOAT),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "product",
        [value("x", TensorProto.FLOAT, [ROWS, INNER])],
        [value("y", TensorProto.FLOAT, [ROWS, COLUMNS])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def first_row(model: onnx.ModelProto, folder, name: str) -> np.ndarray:
    """Every row of the plan is the same."""
    x = np.full((ROWS, INNER), 127 * STEP, dtype=np.float32)
    return plan_rows(model, {"x": x}, folder, name)[0]


@pytest.mark.parametrize(
    ("swept", "sums", "biases"),
    [
        ("sum", SUMS, np.full(COLUMNS, 100.0)),
        ("bias", np.full(COLUMNS, 2_000.0), BIASES),
    ],
)
def test_product_as_written_is_finite_and_right(tmp_path, record_property, swept, sums, biases):
    half = first_row(product(sums, biases, TensorProto.FLOAT16), tmp_path, "declared_fp16")
    lost = {"sum": sums, "bias": biases}[swept][~np.isfinite(half)]
    record_property(f"fp16_first_infinite_{swept}", float(lost.min()) if len(lost) else None)
    record_property("fp16_infinite_columns", len(lost))
    source = product(sums, biases, TensorProto.FLOAT)
    x = np.full((ROWS, INNER), 127 * STEP, dtype=np.float32)
    expected = OrtNetwork(source.SerializeToString(), fuses_qdq=False).rows({"x": x})[0]
    found = first_row(half_precision(source), tmp_path, "written")
    record_property("written_worst_error", float(np.abs(found / expected - 1).max()))
    assert np.isfinite(found).all()
    assert np.allclose(found, expected, rtol=2e-3, atol=1e-4)


def normalisation(squares: np.ndarray, *, is_sum: bool) -> tuple[onnx.ModelProto, dict]:
    """A LayerNormalization of rows with these sums of squares, alone or behind a residual Add."""
    random = np.random.default_rng(0)
    rows = random.choice([-1.0, 1.0], (len(squares), COLUMNS)) * np.sqrt(squares / COLUMNS)[:, None]
    feed = {"x": rows.astype(np.float32)}
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, rows.shape)]
    nodes = []
    if is_sum:
        feed = {"x": feed["x"] / 4, "beside": feed["x"] * 3 / 4}
        inputs.append(value("beside", TensorProto.FLOAT, rows.shape))
        nodes.append(helper.make_node("Add", ["x", "beside"], ["sum"]))
    read = "sum" if is_sum else "x"
    nodes.append(helper.make_node("LayerNormalization", [read, "gain", "offset"], ["y"], axis=-1))
    constants = {"gain": np.ones(COLUMNS, np.float32), "offset": np.zeros(COLUMNS, np.float32)}
    graph = helper.make_graph(
        nodes,
        "normalisation",
        inputs,
        [value("y", TensorProto.FLOAT, rows.shape)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feed


@pytest.mark.parametrize("is_sum", [False, True], ids=["alone", "behind_an_add"])
def test_layer_normalization_in_fp16_sums_beyond_its_range(tmp_path, record_property, is_sum):
    squares = np.array([1e3, 1e5, 1e6, 1e8])
    source, feed = normalisation(squares, is_sum=is_sum)
    expected = OrtNetwork(source.SerializeToString()).rows(feed)
    found = plan_rows(half_precision(source), feed, tmp_path, "normalisation")
    for square, row, right in zip(squares, found, expected, strict=True):
        record_property(f"error_{square:.0e}", float(np.abs(row - right).max()))
    assert np.isfinite(found).all() and np.allclose(found, expected, atol=1e-2)
