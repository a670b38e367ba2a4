"""The reproducer of INT8's NaN: MiniLM's Q/DQ network with its products declared FP16.

TensorRT's fused kernels then convert the INT32 sums to FP16 before they scale them (docs/decisions,
43): NaN on an H100 with TensorRT 10.6, and finite where the counts of weights are a sixteenth. What
those two do is recorded; the network as our writer declares it must be finite.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from engine_build.ort import OrtNetwork
from engine_build.tensorrt.half_precision import half_precision, int8_products
from engine_build.tensorrt.trtexec import InputRange
from tests.gpu.compiled import plan_rows
from tests.gpu.minilm import STORE
from tests.gpu.test_trtexec import pytestmark  # noqa: F401

ROWS, LENGTH, TOKENS = 8, 64, 20_000
SHRINK = 16
PROFILE = tuple(
    InputRange(name=name, smallest=(1, 8), opt=(ROWS, LENGTH), largest=(32, 128))
    for name in ("input_ids", "attention_mask", "token_type_ids")
)


@pytest.fixture(scope="module")
def network() -> onnx.ModelProto:
    """The Q/DQ network that the CPU made."""
    record = next(STORE.glob("networks/*/half-int8-*.json"), None)
    if record is None:
        pytest.skip("needs the networks of `make gpu-bundle`")
    return onnx.load(next(record.parent.glob("*-model.onnx")))


@pytest.fixture(scope="module")
def feed() -> dict[str, np.ndarray]:
    shape = (ROWS, LENGTH)
    ids = np.random.default_rng(0).integers(1_000, TOKENS, shape)
    return {
        "input_ids": ids,
        "attention_mask": np.ones(shape, dtype=np.int64),
        "token_type_ids": np.zeros(shape, dtype=np.int64),
    }


def declared_fp16(model: onnx.ModelProto, *, shrink: int = 1) -> onnx.ModelProto:
    """The network as it was written before: FP16 scales, products and no casts behind them.

    `shrink` divides the counts of weights.
    """
    half = half_precision(model)
    tensors = {tensor.name: tensor for tensor in half.graph.initializer}
    products = [half.graph.node[index] for index in sorted(int8_products(half))]
    outputs = {node.output[0] for node in products if node.op_type != "DequantizeLinear"}
    for node in products:
        if node.op_type == "DequantizeLinear":
            for name, change in ((node.input[0], shrink), (node.input[1], None)):
                if name in tensors:
                    values = numpy_helper.to_array(tensors[name])
                    new = values.astype(np.float16) if change is None else values // change
                    tensors[name].CopyFrom(numpy_helper.from_array(new, name))
    for node in half.graph.node:
        if node.op_type == "Cast" and node.input[0] in outputs:
            node.op_type = "Identity"
            del node.attribute[:]
    return half


def test_network_as_written_is_finite_whatever_its_sums_are(
    network, feed, tmp_path, record_property
):
    def not_finite(model, name):
        rows = plan_rows(model, feed, tmp_path, name, PROFILE)
        return int((~np.isfinite(rows).all(axis=1)).sum()), rows

    record_property("rows", ROWS)
    record_property("declared_fp16_not_finite", not_finite(declared_fp16(network), "fp16")[0])
    small = declared_fp16(network, shrink=SHRINK)
    record_property("of_small_sums_not_finite", not_finite(small, "small")[0])
    broken, rows = not_finite(half_precision(network), "written")
    expected = OrtNetwork(network.SerializeToString(), fuses_qdq=False).rows(feed)
    cosines = (rows * expected).sum(axis=1) / np.linalg.norm(rows, axis=1)
    record_property("worst", float(cosines.min()))
    assert broken == 0
    assert (cosines / np.linalg.norm(expected, axis=1)).min() > 0.98
