"""What each output of a network, and its head, ask of a comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine_build.datasets.dataset import Samples
from engine_build.datasets.tensors import TensorEncoder
from engine_build.errors import InputRefused
from engine_build.evaluation.accuracy import accuracy
from engine_build.evaluation.standards import output_standards, standard_of
from onboarding.model_spec import AccuracySpec, BudgetSpec
from tests.unit.engine_build.graphs import node, tensor, write_graph
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.quantization.graphs import record

ROWS = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
SAMPLES = Samples(values=tuple({"x": row} for row in ROWS), labels=tuple("010101"))
BOTH = np.concatenate([ROWS, ROWS], axis=1)


@pytest.fixture
def network(tmp_path):
    """Outputs start and end, [batch, tokens], as of a network that answers questions."""
    nodes = [node("Relu", "x", "start"), node("Neg", "x", "end")]
    outputs = [tensor(name, "batch", "tokens") for name in ("start", "end")]
    path = write_graph(tmp_path / "m.onnx", nodes, [tensor("x", "batch", "tokens")], outputs)
    outputs = (record("start", -1, -1), record("end", -1, -1))
    inputs = (record("x", -1, -1),)
    return graphs.network(path, inputs, outputs)


def spec(**outputs):
    return AccuracySpec(dataset="v.npz", metric="relative_error", outputs=outputs)


def test_sizes_follow_the_samples_and_an_output_without_a_budget_has_the_common_one(network):
    spec_ = spec(end={"metric": "cosine"}, start={"budget": {"mean": 0.5}})
    outputs = output_standards(spec_, network, TensorEncoder(network.inputs), SAMPLES.values)
    assert [(item.name, item.size, item.metric, item.budget.mean) for item in outputs] == [
        ("start", 5, "relative_error", 0.5),
        ("end", 5, "cosine", 0.99),
    ]


def test_labels_belong_to_the_output_whose_metric_needs_them(network):
    outputs = (record("start", -1, 5), record("end", -1, 5))
    classes = graphs.network(network.path, network.inputs, outputs)
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


def head(*shape, activation, labels):
    outputs, facts = (record("logits", *shape),), {"activation": activation}
    fields = {"facts": facts, "tokenizer": Path("tokenizer.json"), "labels": labels}
    return graphs.network(Path("m.onnx"), (), outputs, **fields)


RANDOM = np.random.default_rng(0)


def judge(network, samples, metric, reference, rows):
    spec = AccuracySpec(dataset="a.tsv", metric=metric, budget=BudgetSpec(mean=0.9))
    return accuracy(
        "it", rows, standard_of(spec, network, TensorEncoder(()), samples, reference, "a.tsv")
    )


def test_order_is_of_each_querys_texts():
    ranker = head(-1, 1, activation="sigmoid", labels=None)
    samples = Samples(values=tuple((f"q{place % 60}", f"t{place}") for place in range(120)))
    reference = RANDOM.standard_normal((120, 1)).astype(np.float32)
    assert judge(ranker, samples, "order", reference, 3 * reference + 9).mean == 1
    turned = reference.copy()
    turned[:60] *= -1
    turned[60:] *= -1
    assert judge(ranker, samples, "order", reference, turned).mean == 0


def test_tokens_weigh_alike_whatever_their_texts():
    tagger = head(-1, -1, 2, activation="softmax", labels=("O", "B"))
    reference = np.zeros((120, 4, 2), np.float32)
    reference[:, 0, 1] = 1
    reference[:60, 1:, 0] = 1
    rows = reference.copy()
    rows[60:, 0] = [1, 0]
    samples = Samples(values=tuple(map(str, range(120))))
    flat = judge(tagger, samples, "agreement", reference.reshape(120, -1), rows.reshape(120, -1))
    # 60 texts of four tokens are right, 60 of one token are wrong.
    assert flat.mean == pytest.approx(240 / 300) and flat.worst == 0


def test_labels_that_are_chosen_one_by_one_agree_as_a_set():
    multi = head(-1, 2, activation="sigmoid", labels=("a", "b"))
    reference = np.tile(np.array([[3.0, -1.0]], np.float32), (120, 1))
    rows = reference * 3
    rows[:30, 1] = 1
    samples = Samples(values=tuple(map(str, range(120))))
    assert judge(multi, samples, "agreement", reference, rows).mean == 0.75
