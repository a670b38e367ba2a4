"""Texts as rows: what is cut and counted, what is refused, and in which words."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tokenizers import Tokenizer

from container.server.engines.tokens import PROBE, TextEncoder
from container.server.types import RequestFault
from tests.fixtures.tiny_embedder.archive import HERE

LONGEST = 8
"""Tokens, of which two are special ones."""
FITS, LONGER = "cat " * 6, "cat " * 7


def encoder(**changes):
    return TextEncoder(HERE / "tokenizer.json", **({"max_tokens": LONGEST} | changes))


def lengths(encoded):
    return [len(row) for row in encoded.rows]


def test_longer_texts_are_cut_to_their_beginnings_and_counted():
    encoded = encoder().encode([LONGER, "a", "cat " * 500])
    assert (lengths(encoded), encoded.truncated) == ([LONGEST, 3, LONGEST], 2)
    (whole,) = encoder().encode([FITS]).rows
    assert all(encoded.rows[index].ids.tolist() == whole.ids.tolist() for index in (0, 2))


def test_without_a_limit_no_text_is_too_long():
    """The tokenizer's file has a limit of its own, at 128 tokens.

    Only a tokenizer that cuts obeys.
    """
    assert lengths(encoder(max_tokens=None, truncates=False).encode(["cat " * 500])) == [502]
    encoded = encoder(max_tokens=None).encode(["cat " * 500, "cat " * 126])
    assert (lengths(encoded), encoded.truncated) == ([128, 128], 1)


def test_probe_fits_engines_that_take_fewer_tokens_than_it_has():
    (whole,) = encoder(max_tokens=None).probe()
    for truncates in (True, False):
        (cut,) = encoder(max_tokens=len(whole) - 1, truncates=truncates).probe()
        assert len(cut) == len(whole) - 1
        (probe,) = encoder(max_tokens=len(whole), truncates=truncates).probe()
        assert probe.ids.tolist() == encoder(max_tokens=None).encode([PROBE]).rows[0].ids.tolist()


LONG_TEXTS = {
    "words": "cat dog " * 20_000,
    "one word": "c" * 150_000,
    "spaces": " " * 150_000 + "cat",
    "punctuation": "!" * 150_000,
    "late words": "c" * 90_000 + " cat" * 500,
}
each_long_text = pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS)


@pytest.fixture
def tokenizer():
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@each_long_text
def test_long_text_is_cut_to_the_tokens_of_the_whole(text, tokenizer):
    tokenizer.enable_truncation(max_length=LONGEST)
    encoded = encoder().encode(["a cat", text, "a cat"])
    expected = tokenizer.encode_batch_fast(["a cat", text, "a cat"])
    assert [row.ids.tolist() for row in encoded.rows] == [encoding.ids for encoding in expected]
    assert encoded.truncated == sum(bool(encoding.overflowing) for encoding in expected)


@each_long_text
def test_tokens_of_a_long_text_are_counted_as_a_whole(text, tokenizer):
    count, refusing = len(tokenizer.encode(text)), encoder(truncates=False)
    if count <= LONGEST:
        assert lengths(refusing.encode([text])) == [count]
        return
    with pytest.raises(RequestFault, match=rf"text\[1\] has {count};"):
        refusing.encode(["a cat", text])


def test_large_request_is_tokenized_in_parts_and_takes_little_memory():
    """Six million characters of punctuation took 2.6 GB."""
    program = f"""
import resource
from pathlib import Path
from container.server.engines.tokens import TextEncoder
encoder = TextEncoder(Path({str(HERE / "tokenizer.json")!r}), max_tokens=256)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for texts in (["! " * 3_000_000], ["! " * 2_900] * 1024, ["! ? " * 1_500_000]):
    encoder.encode(texts)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert int(done.stdout) < 200
