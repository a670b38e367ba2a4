"""Rows of samples."""

from __future__ import annotations

import numpy as np

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

    def length(self, text):
        return len(text)


def answer(feed):
    return np.array([[len(text)] for text in feed])


def test_rows_come_back_in_the_order_of_their_texts():
    assert rows_by_length(answer, Encoder(), TEXTS, 3).tolist() == [[3], [1], [2], [4]]
    assert rows_in_order(answer, Encoder(), TEXTS, 3).tolist() == [[3], [1], [2], [4]]


def test_batches_by_length_hold_neighbours():
    encoder = Encoder()
    rows_by_length(answer, encoder, TEXTS, 2)
    assert encoder.batches == [["a", "bb"], ["ccc", "dddd"]]
    encoder = Encoder()
    rows_in_order(answer, encoder, TEXTS, 2)
    assert encoder.batches == [["ccc", "a"], ["bb", "dddd"]]
