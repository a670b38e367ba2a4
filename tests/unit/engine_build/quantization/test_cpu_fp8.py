"""FP8 networks with casts in place of Q/DQ nodes: the same answers in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.errors import NetworkRefused
from engine_build.ort import OrtNetwork
from engine_build.quantization.fp8 import with_casts, write_cpu_fp8
from tests.unit.engine_build.quantized import quantized

E4M3 = TensorProto.FLOAT8E4M3FN
ROWS = {"x": np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32) * 4}


def with_constant_weight(steps):
    """The network whose first weight is kept in E4M3, with `steps` by column."""
    model = quantized(E4M3)
    node = next(node for node in model.graph.node if node.output[0] == "weights")
    model.graph.node.remove(node)
    values = np.random.default_rng(2).integers(0, 0x70, (16, 16)).astype(np.uint8)
    model.graph.initializer.append(
        helper.make_tensor("weights", E4M3, [16, 16], values.tobytes(), raw=True)
    )
    back = next(node for node in model.graph.node if node.output[0] == "weights_back")
    back.input[1:] = ["steps"]
    back.attribute.append(helper.make_attribute("axis", 1))
    model.graph.initializer.append(numpy_helper.from_array(steps, "steps"))
    return model


@pytest.mark.parametrize("kind", ["computed weight", "constant weight"])
def test_answers_are_those_of_the_qdq_nodes(kind, tmp_path):
    steps = np.linspace(0.001, 0.01, 16, dtype=np.float32)
    model = quantized(E4M3) if kind == "computed weight" else with_constant_weight(steps)
    onnx.save(model, tmp_path / "q.onnx")
    write_cpu_fp8(tmp_path / "q.onnx", tmp_path / "casts.onnx")
    written = onnx.load(tmp_path / "casts.onnx")
    assert not {"QuantizeLinear", "DequantizeLinear"} & {n.op_type for n in written.graph.node}
    rows = OrtNetwork(tmp_path / "casts.onnx").rows(ROWS)
    # Equal but for the order of sums: one step of E4M3 would be a thousand times as much.
    assert np.allclose(rows, OrtNetwork(tmp_path / "q.onnx").rows(ROWS), rtol=1e-5, atol=1e-6)
    assert len(np.unique(rows)) > 100


def test_refuses_several_scales_of_an_activation():
    model = quantized(E4M3)
    scales = numpy_helper.from_array(np.ones(16, dtype=np.float32), "step")
    next(item for item in model.graph.initializer if item.name == "step").CopyFrom(scales)
    with pytest.raises(NetworkRefused, match="16 scales of an activation; allowed on a CPU"):
        with_casts(model)
