"""Labels and scores of logits, as archives carry the code that makes them."""

from __future__ import annotations

import numpy as np

from container.triton.heads import (
    apply_activation,
    padded_spans,
    token_answers,
    token_classes,
)


def test_large_logits_give_finite_scores():
    large = np.array([[1e4, -1e4]], np.float32)
    for activation in ("softmax", "sigmoid"):
        assert apply_activation(large, activation).tolist() == [[1, 0]]


def test_texts_without_tokens_have_one_filled_place():
    spans = padded_spans([np.empty((0, 2), np.int32)], 3)
    answers = token_answers(*token_classes(np.zeros((1, 3, 2))), spans, labels=("O", "B"))
    assert (answers["labels"].tolist(), answers["scores"].tolist()) == ([[b""]], [[0.0]])
