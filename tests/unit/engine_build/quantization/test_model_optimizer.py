"""A network that NVIDIA's Model Optimizer quantized to FP8, read as any source with Q/DQ nodes.

fp8.onnx is of nvidia-modelopt 0.47.0, onnx 1.21.0 and ONNX Runtime 1.24.4, 2026-11-23: random
weights, a Conv of 24 channels, a MatMul and two Gemms, each behind a Relu, by
`quantize(onnx_path, quantize_mode="fp8", calibration_method="max", calibration_eps=["cpu"],
high_precision_dtype="fp32", calibration_shapes="x:8x24x4x4")`. Weights stay in float, behind a
QuantizeLinear of their own with a scale an output channel.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from engine_build.ort import OrtNetwork
from engine_build.quantization.fp8 import with_casts
from engine_build.quantization.given_qdq import given_quantization
from engine_build.tensorrt.half_precision import half_precision

FP8 = Path(__file__).resolve().parents[3] / "fixtures/model_optimizer/fp8.onnx"
FEED = {"x": np.random.default_rng(0).standard_normal((8, 24, 4, 4)).astype(np.float32)}


def test_its_nodes_are_fp8():
    assert given_quantization(onnx.load(FP8)).types == ("float8_e4m3fn",)


@pytest.mark.parametrize(
    ("written", "most"),
    [(lambda model: model, 1e-6), (with_casts, 1e-6), (half_precision, 2e-2)],
    ids=["as it is", "for servers on a CPU", "for a GPU"],
)
def test_its_answers_are_those_of_the_reference_implementation(written, most):
    (expected,) = ReferenceEvaluator(onnx.load(FP8)).run(None, FEED)
    network = OrtNetwork(written(onnx.load(FP8)).SerializeToString(), fuses_qdq=False)
    rows = network.rows(FEED)
    assert np.linalg.norm(rows - expected) <= most * np.linalg.norm(expected)
    assert np.abs(rows).max() > 0.1
