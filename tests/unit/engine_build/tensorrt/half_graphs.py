"""Four small networks with every node in FP16, whose named constants a test makes loud.

The writer would keep most of what they hold in FP32: they are what it must never write.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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
