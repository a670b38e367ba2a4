"""Small networks with random weights and nodes without names: a transformer block, a CNN, a ViT."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.onnx_graph.network_store import Network
from engine_build.quantization.calibration import calibrate
from engine_build.quantization.layers import Layer, quantizable_layers
from onboarding.manifest import TensorRecord

WIDTH, INNER, CLASSES, CHANNELS = 16, 32, 5, 16
LOUD = 3
"""The channel of the transformer block's GELU that is far louder than the rest."""


class Graph:
    """A graph under construction; every tensor is named by its number."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def constant(self, values: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def weight(self, *shape: int) -> str:
        values = self.random.standard_normal(shape) / np.sqrt(shape[0])
        return self.constant(values.astype(np.float32))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, dtype=np.float32))

    def matmul(self, tensor: str, rows: int, columns: int) -> str:
        product = self.node("MatMul", tensor, self.weight(rows, columns))
        return self.node("Add", product, self.weight(columns))

    def norm(self, tensor: str) -> str:
        ones, zeros = np.ones(WIDTH, dtype=np.float32), np.zeros(WIDTH, dtype=np.float32)
        constants = self.constant(ones), self.constant(zeros)
        return self.node("LayerNormalization", tensor, *constants, axis=-1)

    def gelu(self, tensor: str) -> str:
        erf = self.node("Erf", self.node("Div", tensor, self.number(2**0.5)))
        one = self.node("Add", erf, self.number(1))
        return self.node("Mul", self.node("Mul", tensor, one), self.number(0.5))

    def model(
        self, inputs: dict[str, tuple[int, list[object]]], output: str, columns: int
    ) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [output], ["y"]))
        values = [
            helper.make_tensor_value_info(name, kind, shape)
            for name, (kind, shape) in inputs.items()
        ]
        answer = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", columns])
        graph = helper.make_graph(self.nodes, "small", values, [answer], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model, full_check=True)
        return model


def chain(*operators: str) -> onnx.ModelProto:
    """X -> MatMul -> operators -> MatMul -> y."""
    graph = Graph()
    tensor = graph.node("MatMul", "x", graph.weight(4, 4))
    for operator in operators:
        tensor = graph.node(operator, tensor)
    product = graph.node("MatMul", tensor, graph.weight(4, 4))
    return graph.model({"x": (TensorProto.FLOAT, ["batch", 4])}, product, 4)


def transformer() -> onnx.ModelProto:
    """One encoder block over x [batch, sequence, WIDTH], the mean over attention_mask, a Gemm."""
    graph = Graph()
    hidden = _block(graph, "x")
    last, axis = graph.constant(np.array([-1])), graph.constant(np.array([1]))
    mask = graph.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    mask = graph.node("Unsqueeze", mask, last)
    total = graph.node("ReduceSum", graph.node("Mul", hidden, mask), axis, keepdims=0)
    mean = graph.node("Div", total, graph.node("ReduceSum", mask, axis, keepdims=0))
    scores = graph.node("Gemm", mean, graph.weight(CLASSES, WIDTH), graph.weight(CLASSES), transB=1)
    inputs = {
        "x": (TensorProto.FLOAT, ["batch", "sequence", WIDTH]),
        "attention_mask": (TensorProto.INT64, ["batch", "sequence"]),
    }
    return graph.model(inputs, scores, CLASSES)


def cnn(channels: int = CHANNELS) -> onnx.ModelProto:
    """Two convolutions with a residual, a pool and a Gemm over x [batch, 3, 8, 8]."""
    graph = Graph()

    def convolution(tensor: str, inputs: int) -> str:
        weights = graph.weight(channels, inputs, 3, 3), graph.weight(channels)
        return graph.node("Conv", tensor, *weights, pads=[1] * 4)

    first = graph.node("Relu", convolution("x", 3))
    second = convolution(first, channels)
    pooled = graph.node("GlobalAveragePool", graph.node("Relu", graph.node("Add", first, second)))
    flat = graph.node("Flatten", pooled)
    scores = graph.node("Gemm", flat, graph.weight(channels, CLASSES), graph.weight(CLASSES))
    return graph.model({"x": (TensorProto.FLOAT, ["batch", 3, 8, 8])}, scores, CLASSES)


def vit() -> onnx.ModelProto:
    """A convolution of patches, a transformer block, the mean and a MatMul; x [batch, 3, 8, 8]."""
    graph = Graph()
    weights = graph.weight(WIDTH, 3, 4, 4), graph.weight(WIDTH)
    patches = graph.node("Conv", "x", *weights, strides=[4, 4])
    flat = graph.node("Reshape", patches, graph.constant(np.array([0, 0, -1])))
    hidden = _block(graph, graph.node("Transpose", flat, perm=[0, 2, 1]))
    scores = graph.matmul(graph.node("ReduceMean", hidden, axes=[1], keepdims=0), WIDTH, CLASSES)
    return graph.model({"x": (TensorProto.FLOAT, ["batch", 3, 8, 8])}, scores, CLASSES)


def _block(graph: Graph, tensor: str) -> str:
    """Attention with two products of activations, and an FFN whose GELU has one loud channel."""
    query, key, value = (graph.matmul(tensor, WIDTH, WIDTH) for _ in range(3))
    products = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 2, 1]))
    context = graph.node("MatMul", graph.node("Softmax", products, axis=-1), value)
    hidden = graph.norm(graph.node("Add", tensor, graph.matmul(context, WIDTH, WIDTH)))
    inner = graph.matmul(hidden, WIDTH, INNER)
    loudness = np.ones(INNER, dtype=np.float32)
    loudness[LOUD] = 20
    activation = graph.gelu(graph.node("Mul", inner, graph.constant(loudness)))
    return graph.norm(graph.node("Add", hidden, graph.matmul(activation, INNER, WIDTH)))


def texts(count: int, *, seed: int, sequence: int = 6) -> tuple[dict[str, np.ndarray], ...]:
    """Rows for the transformer, padding of absurd size among them."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        mask = (np.arange(sequence) < random.integers(2, sequence + 1)).astype(np.int64)
        x = random.standard_normal((sequence, WIDTH)).astype(np.float32)
        rows.append({"x": x, "attention_mask": mask})
    return tuple(rows)


def images(count: int, *, seed: int) -> tuple[dict[str, np.ndarray], ...]:
    """Rows for the CNN and the ViT."""
    random = np.random.default_rng(seed)
    return tuple({"x": random.standard_normal((3, 8, 8)).astype(np.float32)} for _ in range(count))


def record(name, *shape, datatype="FP32"):
    """An input or output of a network."""
    return TensorRecord(name=name, datatype=datatype, shape=shape)


def network(path, inputs=(), outputs=(), **fields):
    """A float network, of whatever lies at a path."""
    known = {"precision": "float", "facts": {}} | fields
    return Network(path=path, inputs=inputs, outputs=outputs, **known)


IMAGE = (record("x", -1, 3, 8, 8),)
TEXT = (record("x", -1, -1, WIDTH), record("attention_mask", -1, -1, datatype="INT64"))
KINDS = {
    "transformer": (transformer, texts, TEXT),
    "cnn": (cnn, images, IMAGE),
    "vit": (vit, images, IMAGE),
}
"""A network, its samples, its inputs."""


def feed(rows):
    """One batch."""
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def ranges(model, rows, method="max"):
    """The calibrated ranges of all layers."""
    batches = [rows[begin : begin + 8] for begin in range(0, len(rows), 8)]
    layers = quantizable_layers(model)
    feeds = lambda: map(feed, batches)
    return calibrate(model, layers, feeds, batches=len(batches), method=method)


def layer(node, activation="x", operator="MatMul"):
    """A layer of no network."""
    return Layer(
        node=node,
        operator=operator,
        activation=activation,
        weight="w",
        output=f"{node}_output",
        column_axis=1,
        follows_activation_function=False,
    )


def constants(model):
    """The weights by name."""
    return {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
