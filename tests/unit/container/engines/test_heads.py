"""Rows of heads and images: pairs, texts with places, classes of tokens, files of pixels."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from container.server.engines.heads import (
    PAIR_CHARACTERS,
    PairEncoder,
    TokenClassShaping,
)
from container.server.engines.shaping import Tensor
from container.server.types import RequestFault
from tests.fixtures.tiny_embedder.archive import HERE

LONGEST = 8
FILE = HERE / "tokenizer.json"


def whole(pair, longest=LONGEST):
    """The ids and types of a pair whose tokenizer reads all of it."""
    tokenizer = Tokenizer.from_file(str(FILE))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=longest)
    encoding = tokenizer.encode(*pair)
    return encoding.ids, encoding.type_ids


@pytest.mark.parametrize(
    "pair", [("a cat", "the dog"), ("a " * 20, "cat"), ("a", "dog " * 20), ("a " * 9, "dog " * 9)]
)
def test_longer_text_of_a_pair_is_cut_first(pair):
    encoded = PairEncoder(FILE, max_tokens=LONGEST).encode([pair])
    (row,) = encoded.rows
    assert (row.ids.tolist(), row.type_ids.tolist()) == whole(pair)
    assert encoded.truncated == (len(" ".join(pair).split()) > LONGEST)


def test_very_long_texts_are_read_as_far_as_they_fill_the_sequence():
    long = "cat " * PAIR_CHARACTERS
    for pair in (("a dog", long), (long, "a dog")):
        (row,) = PairEncoder(FILE, max_tokens=LONGEST).encode([pair]).rows
        assert (row.ids.tolist(), row.type_ids.tolist()) == whole(pair)


def test_refuses_long_pairs_that_are_not_cut():
    encoder = PairEncoder(FILE, max_tokens=LONGEST, truncates=False)
    assert len(encoder.encode([("a cat", "a dog")]).rows) == 1
    with pytest.raises(RequestFault, match=r"text\[1\] has 12"):
        encoder.encode([("a", "b"), ("cat " * 6, "dog " * 6)])


def test_rows_are_as_wide_as_the_longest_sequence_whatever_their_batch():
    inputs = {"input_ids": Tensor(dtype=np.int64, rank=2)}
    shaping = TokenClassShaping(None, inputs=inputs, outputs=["logits"], longest=6)
    for tokens in (2, 6):
        logits = np.zeros((2, tokens, 4), np.float32)
        logits[:, :, 3] = 50
        classes, scores = shaping.answer({"logits": logits})
        assert classes.shape == scores.shape == (2, 6)
        assert (classes[:, :tokens] == 3).all() and np.allclose(scores[:, :tokens], 1)
        assert not classes[:, tokens:].any() and not scores[:, tokens:].any()
