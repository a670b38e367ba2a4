"""What a fused kernel may hold in FP16: 24 overflows planted in four networks, 19 good ones.

The networks have every node in FP16, and named constants that a test makes loud; the writer would
keep most of what they hold in FP32. The values are those of the same networks in FP32 and, where
integers are multiplied, in integers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.tensorrt.fused_ranges import BIAS, held_beyond_half

WIDTH, ROWS, INNER = 32, 4, 64
HALF = TensorProto.FLOAT16


class HalfGraph:
    """A network under construction, in FP16; `loud` multiplies constants by their names."""

    def __init__(self, loud: Mapping[str, float] = {}, *, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._loud = dict(loud)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def node(self, name: str, operator: str, *inputs: str, **attributes: object) -> str:
        domain = "com.microsoft" if operator == "FastGelu" else ""
        node = helper.make_node(operator, inputs, [f"{name}:0"], name, domain=domain, **attributes)
        self._nodes.append(node)
        return f"{name}:0"

    def constant(self, name: str, values: object, dtype: type = np.float16) -> str:
        loud = np.asarray(values, dtype=np.float64) * self._loud.pop(name, 1.0)
        self._constants.append(numpy_helper.from_array(loud.astype(dtype), name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        return self.constant(name, self._random.standard_normal(shape) / np.sqrt(shape[0]))

    def linear(self, name: str, x: str, rows: int, columns: int) -> str:
        y = self.node(name, "MatMul", x, self.weight(f"{name}.weight", rows, columns))
        bias = self.constant(f"{name}.bias", self._random.standard_normal(columns) / 8)
        return self.node(f"{name}.add", "Add", y, bias)

    def quantized(self, name: str, x: str) -> str:
        """A Q/DQ pair, whose scale a test makes loud."""
        scale = self.constant(f"{name}.scale", 0.03)
        zero = self.constant(f"{name}.zero", 0, np.int8)
        y = self.node(f"{name}.quantize", "QuantizeLinear", x, scale, zero)
        return self.node(f"{name}.dequantize", "DequantizeLinear", y, scale, zero)

    def int8_weight(self, name: str, *shape: int, axis: int) -> str:
        """INT8 numbers of a weight, each scale 1 / 1024; a test that makes them loud sets all."""
        full = self._loud.pop(f"{name}.full", 0.0)
        values = self._random.integers(-30, 31, shape)
        if full:
            values = np.full(shape, 127 if full > 0 else -127)
        q = self.constant(f"{name}.values", values, np.int8)
        scale = self.constant(f"{name}.scale", np.full(shape[axis], 2.0**-10))
        zero = self.constant(f"{name}.zeros", np.zeros(shape[axis]), np.int8)
        return self.node(f"{name}.dequantize", "DequantizeLinear", q, scale, zero, axis=axis)

    def int8_linear(self, name: str, x: str, rows: int, columns: int) -> str:
        weight = self.int8_weight(f"{name}.weight", rows, columns, axis=1)
        y = self.node(name, "MatMul", self.quantized(f"{name}.x", x), weight)
        bias = self.constant(f"{name}.bias", self._random.standard_normal(columns) / 8)
        return self.node(f"{name}.add", "Add", y, bias)

    def norm(self, name: str, x: str, width: int = WIDTH) -> str:
        gain = self.constant(f"{name}.gain", np.ones(width))
        offset = self.constant(f"{name}.offset", np.zeros(width))
        return self.node(name, "LayerNormalization", x, gain, offset, axis=-1)

    def multiply(self, name: str, x: str) -> str:
        return self.node(name, "Mul", x, self.constant(f"{name}.factor", 1.0))

    def attention(self, x: str) -> str:
        query, key, value = (self.linear(part, x, WIDTH, WIDTH) for part in ("q", "k", "v"))
        turned = self.node("k.turned", "Transpose", key, perm=[0, 2, 1])
        logits = self.node("logits", "MatMul", query, turned)
        scores = self.node(
            "scores", "Mul", logits, self.constant("scores.factor", 1 / np.sqrt(WIDTH))
        )
        shares = self.node("softmax", "Softmax", scores, axis=-1)
        return self.node("context", "MatMul", shares, value)

    def model(self, output: str, shape: list[int], opset: int = 23) -> onnx.ModelProto:
        assert not self._loud, f"no weight is called {', '.join(self._loud)}"
        graph = helper.make_graph(
            self._nodes,
            "half",
            [helper.make_tensor_value_info("x", HALF, shape)],
            [helper.make_tensor_value_info(output, HALF, None)],
            self._constants,
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def bert(loud: Mapping[str, float] = {}, *, seed: int = 0) -> onnx.ModelProto:
    """Attention and a feed-forward with INT8 products, GELU by its erf, LayerNorm; x [4, 8, 32]."""
    graph = HalfGraph(loud, seed=seed)
    context = graph.int8_linear("dense", graph.attention("x"), WIDTH, WIDTH)
    hidden = graph.norm("norm1", graph.node("residual1", "Add", context, "x"))
    inner = graph.int8_linear("up", hidden, WIDTH, INNER)
    active = graph.node("gelu", "Gelu", graph.multiply("before_gelu", inner))
    down = graph.int8_linear("down", active, INNER, WIDTH)
    hidden = graph.norm("norm2", graph.node("residual2", "Add", down, hidden))
    mean = graph.node(
        "pool", "ReduceMean", hidden, graph.constant("pool.axes", [1], np.int64), keepdims=0
    )
    return graph.model(
        graph.node("length", "ReduceL2", graph.multiply("last", mean)), [ROWS, 8, WIDTH]
    )


def vit(loud: Mapping[str, float] = {}, *, seed: int = 0) -> onnx.ModelProto:
    """Patches by a convolution, attention, GELU by its tanh, a Gemm in INT8; x [4, 3, 8, 8]."""
    graph = HalfGraph(loud, seed=seed)
    weights = graph.weight("patch.weight", WIDTH, 3, 4, 4), graph.weight("patch.bias", WIDTH)
    patches = graph.node("patch", "Conv", "x", *weights, strides=[4, 4])
    flat = graph.node("flat", "Reshape", patches, graph.constant("sizes", [0, 0, -1], np.int64))
    tokens = graph.node("tokens", "Transpose", flat, perm=[0, 2, 1])
    hidden = graph.norm("norm1", graph.node("residual1", "Add", graph.attention(tokens), tokens))
    inner = graph.linear("up", hidden, WIDTH, INNER)
    active = graph.node("gelu", "Gelu", graph.multiply("before_gelu", inner), approximate="tanh")
    hidden = graph.node("residual2", "Add", graph.linear("down", active, INNER, WIDTH), hidden)
    axes = graph.constant("pool.axes", [1], np.int64)
    mean = graph.node("pool", "ReduceMean", graph.multiply("last", hidden), axes, keepdims=0)
    weight = graph.int8_weight("head.weight", 5, WIDTH, axis=0)
    inputs = graph.quantized("head.x", mean), weight, graph.weight("head.bias", 5)
    scores = graph.node("head", "Gemm", *inputs, transB=1)
    return graph.model(graph.node("shares", "LogSoftmax", scores, axis=-1), [ROWS, 3, 8, 8])


def resnet(loud: Mapping[str, float] = {}, *, seed: int = 0) -> onnx.ModelProto:
    """Two convolutions in INT8, one with its bias, an InstanceNorm, the mean; x [4, 16, 8, 8]."""
    graph = HalfGraph(loud, seed=seed)
    weight = graph.int8_weight("conv1.weight", 16, 16, 3, 3, axis=0)
    inputs = graph.quantized("conv1.x", "x"), weight, graph.weight("conv1.bias", 16)
    hidden = graph.node("relu", "Relu", graph.node("conv1", "Conv", *inputs, pads=[1] * 4))
    weight = graph.int8_weight("conv2.weight", 16, 16, 1, 1, axis=0)
    second = graph.node("conv2", "Conv", graph.quantized("conv2.x", hidden), weight)
    added = graph.node("residual", "Add", graph.multiply("second", second), hidden)
    gain, offset = graph.constant("gain", np.ones(16)), graph.constant("offset", np.full(16, 0.01))
    normal = graph.node("norm", "InstanceNormalization", added, gain, offset)
    pooled = graph.node("pool", "GlobalAveragePool", graph.multiply("last", normal))
    return graph.model(graph.node("softplus", "Softplus", pooled), [ROWS, 16, 8, 8])


def qwen(loud: Mapping[str, float] = {}, *, seed: int = 0) -> onnx.ModelProto:
    """RMSNorm before attention and before a gated feed-forward in INT8; x [4, 8, 32]."""
    graph = HalfGraph(loud, seed=seed)
    stream = graph.multiply("embedding", "x")
    normal = graph.node("norm1", "RMSNormalization", stream, graph.constant("g1", np.ones(WIDTH)))
    stream = graph.node("residual1", "Add", stream, graph.attention(normal))
    normal = graph.node("norm2", "RMSNormalization", stream, graph.constant("g2", np.ones(WIDTH)))
    gate, up = (graph.int8_linear(name, normal, WIDTH, INNER) for name in ("gate", "up"))
    silu = graph.node("silu", "Mul", gate, graph.node("sigmoid", "Sigmoid", gate))
    inner = graph.node("gated", "Mul", graph.multiply("gates", silu), up)
    stream = graph.node("residual2", "Add", stream, graph.int8_linear("down", inner, INNER, WIDTH))
    return graph.model(
        graph.node("normal", "LpNormalization", stream, axis=-1, p=2), [ROWS, 8, WIDTH], 23
    )


def samples(model: onnx.ModelProto, *, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Two batches for a network, in FP32."""
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    random = np.random.default_rng(seed)
    return [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(2)]


SUM, SQUARES = "an INT32 sum of the INT8 product", "the sum of squares"
PLANTED = {
    bert: [
        ("dense", SUM, {"dense.weight.full": 1, "dense.x.scale": 0.2}, 1.467e5),
        ("up.add", BIAS, {"up.bias": 50}, 5.011e5),
        ("gelu", "2x of its erf", {"before_gelu.factor": 6.5e4}, 7.243e4),
        ("norm1", "its output", {"norm1.gain": 4e4}, 1.527e5),
        ("logits", "its output", {"q.weight": 1e3, "k.weight": 1e3}, 1.988e7),
        ("length", SQUARES, {"last.factor": 100}, 1.903e5),
    ],
    vit: [
        ("patch", "its output", {"patch.weight": 3e4}, 1.229e5),
        ("before_gelu", "its output", {"before_gelu.factor": 6e4}, 2.293e5),
        ("residual1", "its output", {"patch.weight": 1.4e4}, 1.099e5),
        ("head", SUM, {"head.weight.full": 1, "head.x.scale": 0.1}, 3.19e5),
        ("head", BIAS, {"head.bias": 30}, 7.542e5),
        ("last", "its output", {"last.factor": 6e4}, 2.33e5),
    ],
    resnet: [
        (
            "second",
            "its output",
            {"second.factor": 6e4, "conv1.bias": 40, "conv2.weight.full": 1},
            1.835e5,
        ),
        ("norm", "its output", {"gain": 3e4}, 2.093e5),
        ("last", "its output", {"last.factor": 6e4}, 4.192e5),
        ("norm", SQUARES, {"second.factor": 3e3}, 9.134e4),
        ("norm", "the sum", {"conv1.bias": 6e3}, 9.852e4),
        ("softplus", "the exponential", {"offset": 2e3}, 4.852e8),
    ],
    qwen: [
        ("norm1", SQUARES, {"embedding.factor": 60}, 1.709e5),
        ("embedding", "its output", {"embedding.factor": 4e4}, 1.56e5),
        ("gate", SUM, {"gate.weight.full": 1, "gate.x.scale": 0.2}, 1.986e5),
        ("gated", "its output", {"gates.factor": 6e4, "gate.bias": 20, "up.bias": 20}, 1.004e6),
        ("normal", SQUARES, {"embedding.factor": 50}, 1.186e5),
        ("down.add", BIAS, {"down.bias": 20}, 1.765e5),
    ],
}
CASES = [(network, *plant) for network, plants in PLANTED.items() for plant in plants]
NEARLY = [
    (bert, {"up.bias": 4}),
    (vit, {"last.factor": 7e3}),
    (resnet, {"gain": 6e3}),
    (qwen, {"embedding.factor": 25}),
    # What an H100 holds in FP32, as rows of tests/gpu/test_int8_sums.py and docs/decisions, 43,
    # show: squares of a LayerNormalization, x^3 of a GELU by its tanh, the sum of a mean.
    (bert, {"norm1.gain": 300}),
    (vit, {"before_gelu.factor": 1e3, "down.weight": 1e-3}),
    (vit, {"last.factor": 1e4}),
]
"""Good ones that come near the end of FP16."""


@pytest.mark.parametrize(("network", "node", "intermediate", "loud", "value"), CASES)
def test_planted_overflow_is_named_with_its_value(network, node, intermediate, loud, value):
    model = network(loud)
    held = held_beyond_half(model, samples(model))
    (found,) = (item for item in held if (item.node, item.intermediate) == (node, intermediate))
    assert found.value == pytest.approx(value, rel=0.01) and found.wide == (node,)
    assert str(found).startswith(f"node {node}: {found.intermediate} reaches ")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("network", PLANTED)
def test_good_network_gives_no_alarm(network, seed):
    model = network(seed=seed)
    assert held_beyond_half(model, samples(model, seed=seed)) == ()


@pytest.mark.parametrize(("network", "loud"), NEARLY)
def test_network_near_the_end_of_fp16_gives_no_alarm(network, loud):
    model = network(loud)
    assert held_beyond_half(model, samples(model)) == ()
