"""Every promised architecture is exported faithfully, with its own inputs, limits and classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine_build.datasets.dataset import Shape, rows_in_order
from engine_build.datasets.text import TextEncoder
from engine_build.errors import SourceFault
from engine_build.ort import OrtNetwork
from engine_build.sources.export import export
from engine_build.sources.head import Head
from engine_build.sources.source_model import SourceModel
from tests.unit.engine_build.architectures import CLASSES, TEXT, write_text_checkpoint
from tests.unit.engine_build.tiny import sample_texts

NAMES = tuple(name for name in TEXT if name != "MiniLM")
"""MiniLM is a BERT."""
TYPELESS = ("DistilBERT", "RoBERTa")


def exported(source, folder, longest=16):
    """A session of the exported network, its record and its encoder."""
    network = export(source, sample_texts(30, seed=3), folder, longest=longest)
    encoder = TextEncoder(network.tokenizer, inputs=network.input_names, longest=longest)
    return OrtNetwork(network.path), network, encoder


@pytest.mark.parametrize("name", NAMES)
def test_embedder_is_exported_as_its_source_answers(name, tmp_path):
    source = SourceModel(write_text_checkpoint(tmp_path / "checkpoint", name), longest=16)
    session, network, encoder = exported(source, tmp_path)
    types = () if name in TYPELESS else ("token_type_ids",)
    assert network.input_names == ("input_ids", "attention_mask", *types)
    assert (network.outputs[0].name, network.labels) == ("sentence_embedding", None)
    feed = encoder.feed(sample_texts(9, seed=4))
    assert np.abs(session.rows(feed) - source.rows(feed)).max() < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_classifier_is_exported_with_its_classes(name, tmp_path):
    checkpoint = write_text_checkpoint(tmp_path / "checkpoint", name, classes=CLASSES)
    source = SourceModel(checkpoint, longest=16, task="text-classification")
    session, network, encoder = exported(source, tmp_path)
    (logits,) = network.outputs
    assert (logits.name, logits.shape, network.labels) == ("logits", (-1, 3), CLASSES)
    feed = encoder.feed(sample_texts(40, seed=4))
    rows = session.rows(feed)
    assert np.allclose(rows, source.rows(feed), atol=1e-4)
    assert len(set(rows.argmax(axis=1))) > 1


def test_roberta_takes_its_longest_sequence(tmp_path):
    source = SourceModel(write_text_checkpoint(tmp_path / "checkpoint", "RoBERTa"), longest=32)
    session, _, encoder = exported(source, tmp_path, longest=32)
    feed = encoder.shaped(sample_texts(20, seed=3), Shape(batch=2, sequence=32))
    assert np.isfinite(session.rows(feed)).all()


def test_refuses_sequences_beyond_the_position_offset_of_roberta(tmp_path):
    checkpoint = write_text_checkpoint(tmp_path / "checkpoint", "RoBERTa")
    with pytest.raises(SourceFault, match="takes at most 32 tokens, but a profile goes up to 33"):
        SourceModel(checkpoint, longest=33)


def test_released_model_answers_as_before(tmp_path):
    source = SourceModel(write_text_checkpoint(tmp_path, "BERT"), longest=16)
    feed = TextEncoder(tmp_path / "tokenizer.json", inputs=source.inputs, longest=16).feed(
        sample_texts(5, seed=3)
    )
    before = source.rows(feed)
    source.release()
    assert np.array_equal(source.rows(feed), before)


def test_padding_of_the_served_tokenizer_is_the_models(tmp_path):
    source = SourceModel(write_text_checkpoint(tmp_path, "RoBERTa"), longest=16)
    encoder = TextEncoder(source.save_tokenizer(tmp_path), inputs=source.inputs, longest=16)
    ids = encoder.feed(["a cat", "a slow old train"])["input_ids"]
    assert list(ids[0, -2:]) == [1, 1] and not (ids[1] == 1).any()


def test_refuses_a_checkpoint_without_a_head_for_its_task(tmp_path):
    checkpoint = write_text_checkpoint(tmp_path, "BERT")
    words = r"lacks \d+ weights that BertForSequenceClassification needs, such as classifier.bias"
    with pytest.raises(SourceFault, match=words):
        SourceModel(checkpoint, longest=16, task="text-classification")


@pytest.mark.parametrize(
    ("changes", "activation"),
    [
        ({"classes": ("score",)}, "sigmoid"),
        ({"classes": ("stars",), "problem_type": "regression"}, "identity"),
        ({"classes": CLASSES, "problem_type": "multi_label_classification"}, "sigmoid"),
        ({"classes": CLASSES}, "softmax"),
    ],
)
def test_scores_of_a_classifier_follow_its_problem_type(changes, activation, tmp_path):
    checkpoint = write_text_checkpoint(tmp_path, "BERT", **changes)
    head = SourceModel(checkpoint, longest=16, task="text-classification").head
    assert head == Head(labels=changes["classes"], activation=activation)


def test_token_classifier_answers_every_token(tmp_path):
    checkpoint = write_text_checkpoint(
        tmp_path / "checkpoint", "BERT", classes=CLASSES, head="ForTokenClassification"
    )
    source = SourceModel(checkpoint, longest=16, task="token-classification")
    session, network, _ = exported(source, tmp_path)
    assert network.outputs[0].shape == (-1, -1, 3) and network.answers_tokens
    encoder = TextEncoder(
        network.tokenizer, inputs=network.input_names, longest=16, answers_tokens=True
    )
    texts = ["a cat", "the slow old train ran over the green track"]
    rows = rows_in_order(session.rows, encoder, texts, 2)
    alone = rows_in_order(source.rows, encoder, texts, 1)
    assert rows.shape == (2, 16 * 3) and np.allclose(rows, alone, atol=1e-4)
    # [CLS], two words, [SEP] and padding: only words have an answer.
    assert rows[0].reshape(16, 3).any(axis=1).nonzero()[0].tolist() == [1, 2]


def test_refuses_a_model_that_gives_nan(tmp_path):
    source = SourceModel(write_text_checkpoint(tmp_path / "checkpoint", "BERT"), longest=16)
    weights = source.module.encoder.encoder.layer[0].output.dense.weight
    with torch.no_grad():
        weights.fill_(3e38)
    with pytest.raises(SourceFault, match="gives NaN, Inf or another shape at 1x"):
        export(source, sample_texts(20, seed=3), tmp_path, longest=16)
