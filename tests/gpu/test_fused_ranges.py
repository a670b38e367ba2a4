"""What the judge on the CPU says of fused kernels, on silicon: 2x of a GELU behind a MatMul."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.ort import OrtNetwork
from engine_build.tensorrt.fused_ranges import held_beyond_half
from engine_build.tensorrt.half_precision import half_precision
from tests.gpu.compiled import plan_rows
from tests.gpu.test_trtexec import pytestmark  # noqa: F401

WIDTH, ROWS = 256, 32
SIZES = np.linspace(20_000, 60_000, ROWS)
"""Of a row's values; 2x leaves FP16 from 32,752 on, and x never does."""


def network() -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "unit"], ["product"], "product"),
            helper.make_node("Gelu", ["product"], ["y"], "gelu"),
        ],
        "gelu",
        [value("x", TensorProto.FLOAT, [ROWS, WIDTH])],
        [value("y", TensorProto.FLOAT, [ROWS, WIDTH])],
        [numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32), "unit")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_node_that_the_judge_names_is_right_once_it_stays_fp32(tmp_path, record_property):
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (ROWS, WIDTH))
    feed = {"x": (signs * SIZES[:, None]).astype(np.float32)}
    expected = OrtNetwork(network().SerializeToString()).rows(feed)
    half = half_precision(network())
    held = held_beyond_half(half, [feed])
    assert [item.node for item in held] == ["gelu"]
    found = plan_rows(half, feed, tmp_path, "half")
    lost = SIZES[~np.isfinite(found).all(axis=1)]
    record_property("fp16_first_infinite", 2 * float(lost.min()) if len(lost) else None)
    full = half_precision(network(), full=[name for item in held for name in item.wide])
    assert held_beyond_half(full, [feed]) == ()
    rows = plan_rows(full, feed, tmp_path, "full")
    assert np.isfinite(rows).all() and np.allclose(rows, expected, rtol=2e-3)
