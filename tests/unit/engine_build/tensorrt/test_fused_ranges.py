"""What a fused kernel may hold in FP16: 24 overflows planted in four networks, 16 good ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from engine_build.ort import OrtNetwork
from engine_build.tensorrt.fused_ranges import BIAS, held_beyond_half, in_full_precision
from tests.unit.engine_build.tensorrt.half_graphs import bert, qwen, resnet, samples, vit

SUM, SQUARES = "an INT32 sum of the INT8 product", "the sum of squares"
PLANTED = {
    bert: [
        ("dense", SUM, {"dense.weight.full": 1, "dense.x.scale": 0.2}),
        ("up.add", BIAS, {"up.bias": 50}),
        ("gelu", "2x of its erf", {"before_gelu.factor": 6.5e4}),
        ("norm1", "its output", {"norm1.gain": 4e4}),
        ("logits", "its output", {"q.weight": 1e3, "k.weight": 1e3}),
        ("length", SQUARES, {"last.factor": 100}),
    ],
    vit: [
        ("patch", "its output", {"patch.weight": 3e4}),
        ("before_gelu", "its output", {"before_gelu.factor": 6e4}),
        ("residual1", "its output", {"patch.weight": 1.4e4}),
        ("head", SUM, {"head.weight.full": 1, "head.x.scale": 0.1}),
        ("head", BIAS, {"head.bias": 30}),
        ("last", "its output", {"last.factor": 6e4}),
    ],
    resnet: [
        ("second", "its output", {"second.factor": 6e4, "conv1.bias": 40, "conv2.weight.full": 1}),
        ("norm", "its output", {"gain": 3e4}),
        ("last", "its output", {"last.factor": 6e4}),
        ("norm", SQUARES, {"second.factor": 3e3}),
        ("norm", "the sum", {"conv1.bias": 6e3}),
        ("softplus", "the exponential", {"offset": 2e3}),
    ],
    qwen: [
        ("norm1", SQUARES, {"embedding.factor": 60}),
        ("embedding", "its output", {"embedding.factor": 4e4}),
        ("gate", SUM, {"gate.weight.full": 1, "gate.x.scale": 0.2}),
        ("gated", "its output", {"gates.factor": 6e4, "gate.bias": 20, "up.bias": 20}),
        ("normal", SQUARES, {"embedding.factor": 50}),
        ("down.add", BIAS, {"down.bias": 20}),
    ],
}
CASES = [(network, *plant) for network, plants in PLANTED.items() for plant in plants]
NEARLY = [
    (bert, "up.add", BIAS, {"up.bias": 4}),
    (vit, "last", "its output", {"last.factor": 7e3}),
    (resnet, "norm", "its output", {"gain": 6e3}),
    (qwen, "norm1", SQUARES, {"embedding.factor": 25}),
]
"""Good ones that come near the end of FP16."""


class Values:
    """What a node of a network computes in FP32 and, where integers are multiplied, in integers."""

    def __init__(self, model: onnx.ModelProto, name: str) -> None:
        full = in_full_precision(model)
        self._nodes = {node.name: node for node in full.graph.node}
        self._constants = {
            item.name: numpy_helper.to_array(item) for item in full.graph.initializer
        }
        self._model = full
        self.node = self._nodes[name]

    def of(self, tensor: str) -> np.ndarray:
        """A tensor's values in both batches."""
        if tensor in self._constants:
            return self._constants[tensor]
        feeds = samples(self._model)
        if tensor == "x":
            return np.concatenate([feed["x"] for feed in feeds])
        copy = onnx.ModelProto()
        copy.CopyFrom(self._model)
        copy.graph.output.append(onnx.ValueInfoProto(name=tensor))
        network = OrtNetwork(copy.SerializeToString(), fuses_qdq=False)
        return np.concatenate([network.values([tensor], feed)[tensor] for feed in feeds])

    def source(self, index: int) -> onnx.NodeProto:
        return self._nodes[self.node.input[index].removesuffix(":0")]

    def sums(self) -> np.ndarray:
        x, weight = (self.of(self.source(index).input[0]).astype(np.int64) for index in (0, 1))
        is_turned = any(item.name == "transB" and item.i for item in self.node.attribute)
        sums = x @ (weight.T if is_turned else weight)
        # The output of a Gemm holds its bias too.
        return sums if len(self.node.input) == 2 else sums + self.bias()

    def bias(self) -> np.ndarray:
        add = self.node
        if add.op_type == "Add":
            self.node = self.source(0)
        scales = [self.of(self.source(index).input[1]) for index in (0, 1)]
        self.node = add
        return self.of(add.input[-1]) / (scales[0] * scales[1])

    def squares(self) -> np.ndarray:
        operator, x = self.node.op_type, self.of(self.node.input[0])
        if operator == "ReduceL2":
            return (x.reshape(2, -1) ** 2).sum(1)
        rows = x.reshape(*x.shape[:2], -1) if operator == "InstanceNormalization" else x
        if operator in ("LayerNormalization", "InstanceNormalization"):
            rows = rows - rows.mean(-1, keepdims=True)
        return (rows**2).sum(-1)

    def largest(self, intermediate: str) -> float:
        x = self.node.input[0]
        values = {
            SUM: self.sums,
            BIAS: self.bias,
            SQUARES: self.squares,
            "the sum": lambda: self.of(x).reshape(8, 16, -1).sum(-1),
            "its output": lambda: self.of(self.node.output[0]),
            "2x of its erf": lambda: 2 * self.of(x),
            "the exponential": lambda: np.exp(self.of(x)),
        }[intermediate]()
        return float(np.abs(values).max())


@pytest.mark.parametrize(("network", "node", "intermediate", "loud"), CASES)
def test_planted_overflow_is_named_with_its_value(network, node, intermediate, loud):
    model = network(loud)
    expected = Values(model, node).largest(intermediate)
    assert 65_504 < expected < np.inf
    held = held_beyond_half(model, samples(model))
    (found,) = (item for item in held if (item.node, item.intermediate) == (node, intermediate))
    assert found.value == pytest.approx(expected, rel=0.02) and found.wide == (node,)
    assert str(found).startswith(f"node {node}: {found.intermediate} reaches ")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("network", PLANTED)
def test_good_network_gives_no_alarm(network, seed):
    model = network(seed=seed)
    assert held_beyond_half(model, samples(model, seed=seed)) == ()


@pytest.mark.parametrize(("network", "node", "intermediate", "loud"), NEARLY)
def test_network_near_the_end_of_fp16_gives_no_alarm(network, node, intermediate, loud):
    model = network(loud)
    assert 16_000 < Values(model, node).largest(intermediate) < 65_504
    assert held_beyond_half(model, samples(model)) == ()


@pytest.mark.parametrize(
    ("network", "loud"),
    [
        (bert, {"norm1.gain": 300}),
        (vit, {"before_gelu.factor": 1e3, "down.weight": 1e-3}),
        (vit, {"last.factor": 1e4}),
    ],
    ids=["squares of a LayerNormalization", "x^3 of a GELU by its tanh", "sum of a mean"],
)
def test_what_an_h100_holds_in_fp32_gives_no_alarm(network, loud):
    """Rows of tests/gpu/test_int8_sums.py and docs/decisions, 43."""
    model = network(loud)
    assert held_beyond_half(model, samples(model)) == ()
