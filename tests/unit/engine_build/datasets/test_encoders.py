"""Samples as a network's inputs."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.datasets.dataset import Shape, by_length
from engine_build.datasets.tensors import TensorEncoder
from engine_build.datasets.text import REPEATED_WORDS, TextEncoder
from engine_build.errors import InputRefused
from onboarding.manifest import TensorRecord
from tests.unit.engine_build.tiny import word_tokenizer

TEXTS = ("a cat sat under the red house", "a cat", "a dog ran")
ROWS = tuple(
    {"x": np.full((3, 2), float(value)), "mask": np.array(value % 2 == 0)} for value in range(3)
)
RECORDS = (
    TensorRecord(name="x", datatype="FP16", shape=(-1, -1, 2)),
    TensorRecord(name="mask", datatype="BOOL", shape=(-1,)),
)


@pytest.fixture
def texts(tmp_path):
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    inputs = ("input_ids", "attention_mask")
    return TextEncoder(tmp_path / "tokenizer.json", inputs=inputs, longest=6)


def test_texts_are_padded_to_the_longest_of_a_batch_and_cut_at_the_longest_served(texts):
    feed = texts.feed(TEXTS)
    assert feed["input_ids"].shape == (3, 6) and feed["input_ids"].dtype == np.int64
    assert feed["attention_mask"].sum(axis=1).tolist() == [6, 4, 5]
    assert texts.feed(TEXTS[1:])["input_ids"].shape == (2, 5)
    assert texts.cut(TEXTS) == 1


def test_prompt_stands_before_every_text_and_counts_when_it_is_cut(texts, tmp_path):
    inputs, path = ("input_ids", "attention_mask"), tmp_path / "tokenizer.json"
    prompted = TextEncoder(path, inputs=inputs, longest=6, prompt="a red ")
    written = texts.feed([f"a red {text}" for text in TEXTS])
    assert np.array_equal(prompted.feed(TEXTS)["input_ids"], written["input_ids"])
    assert (texts.cut(TEXTS), prompted.cut(TEXTS)) == (1, 2)


def test_shaped_texts_are_real_tokens_alone(texts):
    feed = texts.shaped(TEXTS, Shape(batch=2, sequence=5))
    assert feed["input_ids"].shape == (2, 5)
    assert feed["attention_mask"].all() and (feed["input_ids"] > 0).all()


def test_batches_come_in_order(texts):
    assert [len(feed["input_ids"]) for feed in texts.feeds(TEXTS, 2)] == [2, 1]
    assert by_length(texts, TEXTS) == [1, 2, 0]


def test_arrays_become_the_networks_own_datatypes():
    feed = TensorEncoder(RECORDS).feed(ROWS)
    assert (feed["x"].shape, feed["x"].dtype) == ((3, 3, 2), np.float16)
    assert feed["mask"].tolist() == [True, False, True]


def test_shaped_arrays_have_the_rows_and_sequence_of_the_shape():
    encoder = TensorEncoder(RECORDS)
    assert encoder.sequence(ROWS[0]) == 3
    assert encoder.shaped(ROWS, Shape(batch=5, sequence=7))["x"].shape == (5, 7, 2)
    assert encoder.shaped(ROWS, Shape(batch=2, sequence=2))["x"].shape == (2, 2, 2)
    assert encoder.shaped(ROWS, Shape(batch=5))["mask"].tolist() == [True, False, True, True, False]


def test_refuses_a_row_without_an_input():
    words = r"no array for input 'mask' of the network; it has: x; add it"
    with pytest.raises(InputRefused, match=words):
        TensorEncoder(RECORDS).feed([{"x": np.zeros((3, 2))}])


def test_repetitions_hold_one_word_or_mark_of_the_texts_many_times(texts):
    repeated = texts.repetitions(TEXTS)
    words = [text.split() for text in repeated[:8]]
    assert [word[0] for word in words] == ["a", "cat", "sat", "under", "the", "red", "house", "dog"]
    assert [len(word) for word in words] == [4, 8, 16, 32, 4, 8, 16, 32]
    assert all(len(set(word)) == 1 for word in words)
    assert "????" in {text[:4] for text in repeated} and len(set(repeated)) == len(repeated)


def test_repetitions_come_evenly_from_many_words_and_from_no_long_one(texts):
    many = tuple(f"w{number} {'漢' * 40}" for number in range(1000))
    repeated = texts.repetitions(many)
    words = [text.split()[0] for text in repeated if text.startswith("w")]
    assert len(words) == REPEATED_WORDS - 6 and words[-1] == "w996"
    assert not any("漢" in text for text in repeated)


def test_repetitions_of_pairs_are_pairs_and_arrays_have_none(texts):
    pairs = texts.repetitions([("red", "cat")])
    assert pairs[0] == ("red red red red",) * 2
    assert texts.repetitions([]) == () and TensorEncoder(RECORDS).repetitions(ROWS) == ()
