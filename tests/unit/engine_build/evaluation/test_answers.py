"""Rows of samples."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.evaluation.answers import rows_by_length, rows_in_order

TEXTS = ["ccc", "a", "bb", "dddd"]


class Encoder:
    """Feeds whose batches remember their texts."""

    def __init__(self):
        self.batches = []

    def feeds(self, texts, batch):
        for begin in range(0, len(texts), batch):
            self.batches.append(texts[begin : begin + batch])
            yield self.batches[-1]

    def aligned(self, rows, feed):
        return rows

    def length(self, text):
        return len(text)


@pytest.mark.parametrize(
    ("rows", "batch", "batches"),
    [
        (rows_by_length, 2, [["a", "bb"], ["ccc", "dddd"]]),
        (rows_in_order, 2, [["ccc", "a"], ["bb", "dddd"]]),
        (rows_by_length, 3, [["a", "bb", "ccc"], ["dddd"]]),
    ],
)
def test_rows_come_back_in_the_order_of_their_texts(rows, batch, batches):
    encoder = Encoder()
    answers = rows(lambda feed: np.array([[len(text)] for text in feed]), encoder, TEXTS, batch)
    assert answers.tolist() == [[3], [1], [2], [4]]
    assert encoder.batches == batches
