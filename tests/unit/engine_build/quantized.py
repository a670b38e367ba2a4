"""Networks that hold Q/DQ nodes of any type, and the float network that they were made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

WEIGHT = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32) / 4
FLOAT = """<ir_version: 9, opset_import: ["": 19]>
g (float[batch, 16] x) => (float[batch, 8] y) {
  product = MatMul(x, w)
  hidden = Relu(product)
  y = MatMul(hidden, v)
}"""
QUANTIZED = """<ir_version: 9, opset_import: ["": 19]>
g (float[batch, 16] x) => (float[batch, 8] y) <float step = {0.03}, float weight_step = {0.015}> {
  q = QuantizeLinear(x, step, zero)
  d = DequantizeLinear(q, step, zero)
  weights = QuantizeLinear(w, weight_step, weight_zero)
  weights_back = DequantizeLinear(weights, weight_step, weight_zero)
  product = MatMul(d, weights_back)
  hidden = Relu(product)
  y = MatMul(hidden, v)
}"""
BIASED = QUANTIZED.replace(
    "product = MatMul(d, weights_back)",
    "bias_back = DequantizeLinear(bias, step)\n  product = Gemm(d, weights_back, bias_back)",
)


def zero_point(name: str, kind: int, value: int = 0) -> onnx.TensorProto:
    """A zero point of any type."""
    if kind in (TensorProto.INT8, TensorProto.UINT8):
        return helper.make_tensor(name, kind, [], [value])
    return helper.make_tensor(
        name, kind, [], b"\0" * 2 if kind == TensorProto.INT16 else b"\0", True
    )


def quantized(
    kind: int = TensorProto.INT8, value: int = 0, *, text: str = QUANTIZED
) -> onnx.ModelProto:
    """A network of one quantized and one float MatMul."""
    model = parser.parse_model(text)
    if kind == TensorProto.FLOAT8E4M3FN:
        for tensor in model.graph.initializer:
            tensor.CopyFrom(numpy_helper.from_array(np.array(0.005, np.float32), tensor.name))
    weight_kind = TensorProto.INT8 if kind == TensorProto.UINT8 else kind
    model.graph.initializer.extend(
        [
            numpy_helper.from_array(WEIGHT, "w"),
            numpy_helper.from_array(WEIGHT[:, :8], "v"),
            zero_point("zero", kind, value),
            zero_point("weight_zero", weight_kind),
        ]
    )
    if text == BIASED:
        model.graph.initializer.append(
            numpy_helper.from_array(np.arange(16, dtype=np.int32), "bias")
        )
    return model


def write_quantized(path: Path, kind: int = TensorProto.INT8, value: int = 0) -> Path:
    """The file of a quantized network."""
    onnx.save(quantized(kind, value), path)
    return path


def write_float(path: Path, opset: int = 19) -> Path:
    """The file of the float network."""
    model = parser.parse_model(FLOAT.replace('"": 19', f'"": {opset}'))
    model.graph.initializer.extend(
        [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(WEIGHT[:, :8], "v")]
    )
    onnx.save(model, path)
    return path
