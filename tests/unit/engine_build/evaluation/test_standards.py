"""What each output of a network is judged by."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.datasets.dataset import Samples
from engine_build.datasets.tensors import TensorEncoder
from engine_build.errors import InputRefused
from engine_build.evaluation.standards import output_standards, standard_of
from engine_build.onnx_graph.network_store import Network
from onboarding.manifest import TensorRecord
from onboarding.model_spec import AccuracySpec
from tests.unit.engine_build.graphs import node, tensor, write_graph

ROWS = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
SAMPLES = Samples(values=tuple({"x": row} for row in ROWS), labels=tuple("010101"))
BOTH = np.concatenate([ROWS, ROWS], axis=1)


def record(name, *shape):
    return TensorRecord(name=name, datatype="FP32", shape=shape)


@pytest.fixture
def network(tmp_path):
    """Outputs start and end, [batch, tokens], as of a network that answers questions."""
    nodes = [node("Relu", "x", "start"), node("Neg", "x", "end")]
    outputs = [tensor(name, "batch", "tokens") for name in ("start", "end")]
    path = write_graph(tmp_path / "m.onnx", nodes, [tensor("x", "batch", "tokens")], outputs)
    outputs = (record("start", -1, -1), record("end", -1, -1))
    inputs = (record("x", -1, -1),)
    return Network(precision="float", path=path, inputs=inputs, outputs=outputs, facts={})


def spec(**outputs):
    return AccuracySpec(dataset="v.npz", metric="relative_error", outputs=outputs)


def test_sizes_that_follow_the_sequence_are_those_of_the_samples(network):
    encoder = TensorEncoder(network.inputs)
    outputs = output_standards(spec(), network, encoder, SAMPLES.values)
    assert [(output.name, output.size) for output in outputs] == [("start", 5), ("end", 5)]


def test_output_without_a_budget_of_its_own_has_the_common_one(network):
    spec_ = spec(end={"metric": "cosine"}, start={"budget": {"mean": 0.5}})
    outputs = output_standards(spec_, network, TensorEncoder(network.inputs), SAMPLES.values)
    assert [(o.metric, o.budget.mean) for o in outputs] == [
        ("relative_error", 0.5),
        ("cosine", 0.99),
    ]


def test_labels_belong_to_the_output_whose_metric_needs_them(network):
    classes = Network(
        precision="float",
        path=network.path,
        inputs=network.inputs,
        outputs=(record("start", -1, 5), record("end", -1, 5)),
        facts={},
    )
    encoder, spec_ = TensorEncoder(network.inputs), spec(end={"metric": "accuracy"})
    standard = standard_of(spec_, classes, encoder, SAMPLES, BOTH, "v.npz")
    assert standard.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert [output.metric for output in standard.outputs] == ["relative_error", "accuracy"]
    without = Samples(values=SAMPLES.values)
    with pytest.raises(InputRefused, match=r"v.npz has no labels, and metric accuracy needs them"):
        standard_of(spec_, classes, encoder, without, BOTH, "v.npz")


def test_refuses_a_budget_of_an_output_that_is_not_there(network):
    words = r"names 'logits', which is no output of the network; allowed: start, end"
    with pytest.raises(InputRefused, match=words):
        output_standards(spec(logits={}), network, TensorEncoder(network.inputs), SAMPLES.values)
