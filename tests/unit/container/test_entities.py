"""Entities of tokens, alone and grouped."""

from __future__ import annotations

import numpy as np

from container.entities import entities_of

TEXT = "Ada Lovelace in Rome"
ARRAYS = {
    "labels": np.array([["B-PER", "I-PER", "O", "LOC", ""]], object),
    "scores": np.array([[0.5, 1.0, 0.9, 0.75, 0.0]], np.float32),
    "offsets": np.array([[[0, 3], [4, 12], [13, 15], [16, 20], [-1, -1]]]),
}


def test_tokens_of_entities_stand_alone():
    (found,) = entities_of(ARRAYS, [TEXT], grouped=False)
    assert [entity.label for entity in found] == ["B-PER", "I-PER", "LOC"]


def test_neighbours_of_one_label_are_one_entity():
    (found,) = entities_of(ARRAYS, [TEXT], grouped=True)
    assert found[0] == ("PER", 0.75, 0, 12, "Ada Lovelace")
    assert found[1] == ("LOC", 0.75, 16, 20, "Rome")


def test_b_begins_another_entity():
    arrays = ARRAYS | {"labels": np.array([["B-PER", "B-PER", "O", "O", ""]], object)}
    (found,) = entities_of(arrays, [TEXT], grouped=True)
    assert [(entity.start, entity.end) for entity in found] == [(0, 3), (4, 12)]
