"""Labels and scores of logits, as archives carry the code that makes them."""

from __future__ import annotations

import numpy as np

from container.triton.heads import (
    NO_OFFSET,
    Head,
    apply_activation,
    has_head,
    padded_spans,
    token_answers,
    token_classes,
)

LOGITS = np.array([[0.0, 2.0, 1.0], [3.0, -1.0, 0.0]], np.float32)


def test_large_logits_give_finite_scores():
    large = np.array([[1e4, -1e4]], np.float32)
    for activation in ("softmax", "sigmoid"):
        assert apply_activation(large, activation).tolist() == [[1, 0]]


def test_tokens_leave_special_ones_out_and_fill_shorter_rows():
    logits = np.zeros((2, 4, 2), np.float32)
    logits[:, :, 1] = [[5, -5, 5, 5], [5, 5, 5, 5]]
    none = [NO_OFFSET, NO_OFFSET]
    spans = padded_spans([np.array([none, [0, 1], [2, 4], none]), np.array([none, [0, 3]])], 4)
    answers = token_answers(*token_classes(logits), spans, labels=("O", "B"))
    assert answers["labels"].tolist() == [[b"O", b"B"], [b"B", b""]]
    assert answers["offsets"].tolist() == [[[0, 1], [2, 4]], [[0, 3], none]]
    assert answers["scores"][1, 1] == 0 and answers["scores"].min(initial=1, where=[[1, 1], [1, 0]])


def test_texts_without_tokens_have_one_filled_place():
    spans = padded_spans([np.empty((0, 2), np.int32)], 3)
    answers = token_answers(*token_classes(np.zeros((1, 3, 2))), spans, labels=("O", "B"))
    assert (answers["labels"].tolist(), answers["scores"].tolist()) == ([[b""]], [[0.0]])


def test_head_answers_the_outputs_of_its_manifest_in_order():
    manifest = {
        "task": "text-classification",
        "labels": ["a", "b", "c"],
        "activation": "softmax",
        "outputs": [{"name": name} for name in ("logits", "labels", "scores")],
    }
    assert has_head(manifest) and not has_head({"task": "text-classification"})
    logits, labels, scores = Head(manifest).answers(LOGITS)
    assert logits.shape == labels.shape == scores.shape == (2, 3)
