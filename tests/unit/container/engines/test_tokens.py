"""Texts as rows: what is cut, and is told so; what is refused, and in which words."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.server.engines.tokens import LISTED_TEXTS, PROBE, TextEncoder, over_long_texts
from container.server.types import RequestFault
from tests.fixtures.tiny_embedder.archive import CARRIED, HERE

LONGEST = 8
"""Tokens, of which two are special ones."""
FITS, LONGER = "cat " * 6, "cat " * 7


def _carried():
    """What Triton's models say, as an archive carries it: no package around it."""
    spec = importlib.util.spec_from_file_location(
        "carried_manifest_check", CARRIED / "manifest_check.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CARRIED_TOO = _carried()


def encoder(**changes):
    return TextEncoder(HERE / "tokenizer.json", **({"max_tokens": LONGEST} | changes))


def lengths(encoded):
    return [len(row) for row in encoded.rows]


def test_text_as_long_as_the_longest_sequence_is_whole():
    for truncates in (True, False):
        encoded = encoder(truncates=truncates).encode(["a", "", FITS])
        assert (lengths(encoded), encoded.truncated) == ([3, 2, LONGEST], 0)


def test_longer_texts_are_cut_to_their_beginnings_and_counted():
    encoded = encoder().encode([LONGER, "a", "cat " * 500])
    assert (lengths(encoded), encoded.truncated) == ([LONGEST, 3, LONGEST], 2)
    (whole,) = encoder().encode([FITS]).rows
    assert all(encoded.rows[place].ids.tolist() == whole.ids.tolist() for place in (0, 2))


def test_longer_texts_are_refused_by_place_tokens_and_limit():
    with pytest.raises(RequestFault) as fault:
        encoder(truncates=False).encode(["a", LONGER, FITS, "cat " * 500])
    assert fault.value.status == 400
    assert str(fault.value) == (
        "The request holds text of more than the 8 tokens that the model takes, special tokens included: "
        "text[1] has 9, text[3] has 502; shorten or split what is longer."
    )


def test_without_a_limit_no_text_is_too_long():
    """The tokenizer's file has a limit of its own, at 128 tokens, which only a tokenizer that cuts
    obeys.
    """
    assert lengths(encoder(max_tokens=None, truncates=False).encode(["cat " * 500])) == [502]
    encoded = encoder(max_tokens=None).encode(["cat " * 500, "cat " * 126])
    assert (lengths(encoded), encoded.truncated) == ([128, 128], 1)


def test_probe_fits_engines_that_take_fewer_tokens_than_it_has():
    (whole,) = encoder(max_tokens=None).probe()
    for truncates in (True, False):
        assert [
            len(row) for row in encoder(max_tokens=len(whole) - 1, truncates=truncates).probe()
        ] == [len(whole) - 1]
        (probe,) = encoder(max_tokens=len(whole), truncates=truncates).probe()
        assert probe.ids.tolist() == encoder(max_tokens=None).encode([PROBE]).rows[0].ids.tolist()


@given(st.lists(st.integers(0, 2 * LONGEST), max_size=3 * LISTED_TEXTS), st.integers(1, LONGEST))
def test_both_servers_say_the_same_of_the_same_texts(found, most):
    sentence = over_long_texts(found, most)
    assert CARRIED_TOO.over_long_texts(found, most) == sentence
    assert (sentence is None) == all(length <= most for length in found)
    assert CARRIED_TOO.over_long_texts(found, None) is None


def test_only_the_first_of_many_are_told_one_by_one():
    sentence = over_long_texts([9] * 100, LONGEST)
    assert sentence.count("text[") == LISTED_TEXTS and " and 95 more are too long;" in sentence
