"""What a network's outputs and its head ask of a comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine_build.datasets.dataset import Samples
from engine_build.datasets.tensors import TensorEncoder
from engine_build.evaluation.accuracy import accuracy
from engine_build.evaluation.standards import standard_of
from engine_build.onnx_graph.network_store import Network
from onboarding.manifest import TensorRecord
from onboarding.model_spec import AccuracySpec, BudgetSpec


def network(*shape, activation, labels):
    return Network(
        precision="float",
        path=Path("model.onnx"),
        inputs=(),
        outputs=(TensorRecord(name="logits", datatype="FP32", shape=shape),),
        facts={"activation": activation},
        tokenizer=Path("tokenizer.json"),
        labels=labels,
    )


RANDOM = np.random.default_rng(0)


def record(network, samples, metric, reference, rows):
    spec = AccuracySpec(dataset="a.tsv", metric=metric, budget=BudgetSpec(mean=0.9))
    return accuracy(
        "it", rows, standard_of(spec, network, TensorEncoder(()), samples, reference, "a.tsv")
    )


def test_order_is_of_each_querys_texts():
    ranker = network(-1, 1, activation="sigmoid", labels=None)
    samples = Samples(values=tuple((f"q{place % 60}", f"t{place}") for place in range(120)))
    reference = RANDOM.standard_normal((120, 1)).astype(np.float32)
    assert record(ranker, samples, "order", reference, 3 * reference + 9).mean == 1
    turned = reference.copy()
    turned[:60] *= -1
    turned[60:] *= -1
    assert record(ranker, samples, "order", reference, turned).mean == 0


def test_tokens_weigh_alike_whatever_their_texts():
    tagger = network(-1, -1, 2, activation="softmax", labels=("O", "B"))
    reference = np.zeros((120, 4, 2), np.float32)
    reference[:, 0, 1] = 1
    reference[:60, 1:, 0] = 1
    rows = reference.copy()
    rows[60:, 0] = [1, 0]
    samples = Samples(values=tuple(map(str, range(120))))
    flat = record(tagger, samples, "agreement", reference.reshape(120, -1), rows.reshape(120, -1))
    # 60 texts of four tokens are right, 60 of one token are wrong.
    assert flat.mean == pytest.approx(240 / 300) and flat.worst == 0


def test_labels_that_are_chosen_one_by_one_agree_as_a_set():
    multi = network(-1, 2, activation="sigmoid", labels=("a", "b"))
    reference = np.tile(np.array([[3.0, -1.0]], np.float32), (120, 1))
    rows = reference.copy()
    rows[:30, 1] = 1
    samples = Samples(values=tuple(map(str, range(120))))
    assert record(multi, samples, "agreement", reference, rows).mean == 0.75
