"""The reproducer of INT8's NaN: one product whose columns have ever larger INT32 sums or biases.

Declared in FP16 throughout, TensorRT brings the sums into FP16 before it scales them; as our writer
declares it, every column is finite. What the FP16 network does is recorded, not asserted.
"""

from __future__ import annotations

import io
from contextlib import closing

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.log import Log
from engine_build.ort import OrtNetwork
from engine_build.runner import ProcessRunner
from engine_build.tensorrt.half_precision import half_precision
from engine_build.tensorrt.host import trtexec_version
from engine_build.tensorrt.network import load_plan
from engine_build.tensorrt.trtexec import CompileOptions, compile_command
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


def answer(model: onnx.ModelProto, folder, name: str) -> np.ndarray:
    """The first row of a plan, strongly typed; every row is the same."""
    network, plan = folder / f"{name}.onnx", folder / f"{name}.plan"
    onnx.save(model, network)
    runner = ProcessRunner(Log(io.StringIO()))
    dialect = 11 if int(trtexec_version(runner).split(".")[0]) >= 11 else 10
    options = CompileOptions(network=network, plan=plan, precision="int8", profiles=())
    ended = runner.run(compile_command(options, dialect))
    assert ended.code == 0, ended.errors
    x = np.full((ROWS, INNER), 127 * STEP, dtype=np.float32)
    with closing(load_plan(plan)) as loaded:
        return loaded.rows({"x": x})[0]


@pytest.mark.parametrize(
    ("swept", "sums", "biases"),
    [
        ("sum", SUMS, np.full(COLUMNS, 100.0)),
        ("bias", np.full(COLUMNS, 2_000.0), BIASES),
    ],
)
def test_product_as_written_is_finite_and_right(tmp_path, record_property, swept, sums, biases):
    half = answer(product(sums, biases, TensorProto.FLOAT16), tmp_path, "declared_fp16")
    lost = {"sum": sums, "bias": biases}[swept][~np.isfinite(half)]
    record_property(f"fp16_first_infinite_{swept}", float(lost.min()) if len(lost) else None)
    record_property("fp16_infinite_columns", len(lost))
    source = product(sums, biases, TensorProto.FLOAT)
    x = np.full((ROWS, INNER), 127 * STEP, dtype=np.float32)
    expected = OrtNetwork(source.SerializeToString(), fuses_qdq=False).rows({"x": x})[0]
    found = answer(half_precision(source), tmp_path, "written")
    record_property("written_worst_error", float(np.abs(found / expected - 1).max()))
    assert np.isfinite(found).all()
    assert np.allclose(found, expected, rtol=2e-3, atol=1e-4)
