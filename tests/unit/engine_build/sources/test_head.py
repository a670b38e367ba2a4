"""Labels and activations, as the files of a source describe them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine_build.errors import SourceFault
from engine_build.sources.head import Head, head_of, refuse_other_head, refuse_other_scores

NAMES = {"0": "calm", "1": "glad"}
ENTITIES = {"0": "O", "1": "B-PER"}


def write(folder, name="config.json", **config):
    (folder / name).write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("task", "config", "head"),
    [
        ("text-embedding", {}, None),
        (
            "text-classification",
            {"id2label": None},
            Head(labels=("LABEL_0", "LABEL_1"), activation="softmax"),
        ),
        ("text-classification", {}, Head(labels=("calm", "glad"), activation="softmax")),
        (
            "text-classification",
            {"problem_type": "multi_label_classification"},
            Head(labels=("calm", "glad"), activation="sigmoid"),
        ),
        (
            "token-classification",
            {"id2label": ENTITIES},
            Head(labels=("O", "B-PER"), activation="softmax"),
        ),
    ],
)
def test_head_is_that_of_the_configuration(task, config, head, tmp_path):
    assert head_of(write(tmp_path, **{"id2label": NAMES} | config), task, scores=2) == head


@pytest.mark.parametrize(
    ("own", "config", "activation"),
    [
        ({}, {}, "sigmoid"),
        (
            {},
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            "identity",
        ),
        ({}, {"sbert_ce_default_activation_function": "torch.nn.Identity"}, "identity"),
        (
            {"activation_fn": "torch.nn.modules.activation.Sigmoid"},
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            "sigmoid",
        ),
    ],
)
def test_activation_of_a_ranker_is_cross_encoders(own, config, activation, tmp_path):
    write(tmp_path, "config_sentence_transformers.json", **own)
    head = head_of(write(tmp_path, **config), "text-ranking", scores=1)
    assert head == Head(labels=None, activation=activation)


@pytest.mark.parametrize(
    ("task", "config", "scores", "says"),
    [
        ("text-classification", {"id2label": NAMES}, 3, "3 scores, but config.json names 2"),
        ("text-classification", {"id2label": {"0": "a", "1": "a"}}, 2, "two classes 'a'"),
        (
            "text-classification",
            {"id2label": ["calm", "glad"]},
            2,
            r'as a list.*names: \{"0": "calm", "1": "glad"\}',
        ),
        ("text-classification", {"problem_type": "ordinal"}, 2, "problem_type 'ordinal'; allowed"),
        ("text-ranking", {}, 3, "gives 3 scores for a pair"),
        (
            "text-ranking",
            {"sbert_ce_default_activation_function": "torch.nn.Tanh"},
            1,
            "torch.nn.Tanh; allowed: Identity, Sigmoid",
        ),
    ],
)
def test_refuses_a_head_that_no_answer_could_be_made_of(task, config, scores, says, tmp_path):
    with pytest.raises(SourceFault, match=says):
        head_of(write(tmp_path, **config), task, scores=scores)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"id2label": NAMES}, "classifier.weight of the checkpoint gives 3 scores, .* names 2"),
        ({}, "gives 3 scores, but config.json names no classes, which means 2"),
        ({"id2label": NAMES, "num_labels": 3}, "num_labels 3, but id2label names 2"),
    ],
)
def test_refuses_labels_that_are_not_the_last_layers(config, says, tmp_path):
    weight = np.zeros((3, 4), np.float32)
    save_file({"classifier.weight": weight}, tmp_path / "model.safetensors")
    with pytest.raises(SourceFault, match=says):
        refuse_other_head(tmp_path, config, "text-classification")
    three = {"id2label": NAMES | {"2": "sad"}}
    assert refuse_other_head(tmp_path, three, "text-classification") is None


def test_refuses_a_network_that_scores_otherwise():
    reference = np.ones((2, 1), np.float32)
    assert refuse_other_scores(reference + 1e-6, reference) is None
    with pytest.raises(SourceFault, match=r"differ from those of .* predict\(\) \(by 0.5\)"):
        refuse_other_scores(reference + 0.5, reference)
