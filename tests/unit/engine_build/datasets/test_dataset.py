"""Datasets: texts, labelled texts, arrays, and files that are none of them."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from engine_build.datasets.dataset import (
    Shape,
    by_length,
    samples,
)
from engine_build.datasets.tensors import TensorEncoder
from engine_build.datasets.text import REPEATED_WORDS, TextEncoder
from engine_build.errors import InputRefused
from onboarding.manifest import TensorRecord
from tests.unit.engine_build.tiny import word_tokenizer


def test_refuses_an_archive_cut_short_anywhere_too_large_or_none(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).random((40, 8)))
    whole, header = path.read_bytes(), io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (1 << 50, 8)}
    np.lib.format.write_array_header_1_0(header, shape)
    large = io.BytesIO()
    with zipfile.ZipFile(large, "w") as archive:
        archive.writestr("x.npy", header.getvalue())
    cut_short = (whole[:length] for length in range(0, len(whole), 53))
    for data in (*cut_short, b"no archive", large.getvalue()):
        path.write_bytes(data)
        with pytest.raises(InputRefused, match=r"a.npz cannot be read \("):
            samples(path)
    with pytest.raises(InputRefused, match=r"b.txt cannot be read"):
        samples(tmp_path / "b.txt")


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


def test_texts_are_padded_cut_and_shaped_into_real_tokens_alone(texts, tmp_path):
    feed = texts.feed(TEXTS)
    assert feed["input_ids"].shape == (3, 6) and feed["input_ids"].dtype == np.int64
    assert feed["attention_mask"].sum(axis=1).tolist() == [6, 4, 5]
    assert texts.feed(TEXTS[1:])["input_ids"].shape == (2, 5)
    assert [len(feed["input_ids"]) for feed in texts.feeds(TEXTS, 2)] == [2, 1]
    assert by_length(texts, TEXTS) == [1, 2, 0]
    # A prompt stands before every text and counts when it is cut.
    inputs, path = ("input_ids", "attention_mask"), tmp_path / "tokenizer.json"
    prompted = TextEncoder(path, inputs=inputs, longest=6, prompt="a red ")
    written = texts.feed([f"a red {text}" for text in TEXTS])
    assert np.array_equal(prompted.feed(TEXTS)["input_ids"], written["input_ids"])
    assert (texts.cut(TEXTS), prompted.cut(TEXTS)) == (1, 2)
    feed = texts.shaped(TEXTS, Shape(batch=2, sequence=5))
    assert feed["input_ids"].shape == (2, 5)
    assert feed["attention_mask"].all() and (feed["input_ids"] > 0).all()


def test_arrays_become_the_networks_datatypes_with_the_rows_and_sequence_of_the_shape():
    encoder = TensorEncoder(RECORDS)
    feed = encoder.feed(ROWS)
    assert (feed["x"].shape, feed["x"].dtype) == ((3, 3, 2), np.float16)
    assert feed["mask"].tolist() == [True, False, True]
    assert encoder.sequence(ROWS[0]) == 3
    assert encoder.shaped(ROWS, Shape(batch=5, sequence=7))["x"].shape == (5, 7, 2)
    assert encoder.shaped(ROWS, Shape(batch=2, sequence=2))["x"].shape == (2, 2, 2)
    assert encoder.shaped(ROWS, Shape(batch=5))["mask"].tolist() == [True, False, True, True, False]


def test_repetitions_hold_one_word_or_mark_of_the_texts_many_times(texts):
    repeated = texts.repetitions(TEXTS)
    words = [text.split() for text in repeated[:8]]
    assert [word[0] for word in words] == ["a", "cat", "sat", "under", "the", "red", "house", "dog"]
    assert [len(word) for word in words] == [4, 8, 16, 32, 4, 8, 16, 32]
    assert all(len(set(word)) == 1 for word in words)
    assert "????" in {text[:4] for text in repeated} and len(set(repeated)) == len(repeated)
    # Evenly from many words, and from no long one.
    repeated = texts.repetitions(tuple(f"w{number} {'漢' * 40}" for number in range(1000)))
    words = [text.split()[0] for text in repeated if text.startswith("w")]
    assert len(words) == REPEATED_WORDS - 6 and words[-1] == "w996"
    assert not any("漢" in text for text in repeated)
    pairs = texts.repetitions([("red", "cat")])
    assert pairs[0] == ("red red red red",) * 2
    assert texts.repetitions([]) == () and TensorEncoder(RECORDS).repetitions(ROWS) == ()
