"""What one set of texts lacks of another: lengths, scripts, characters, words."""

from __future__ import annotations

import pytest

from onboarding.coverage import coverage_gaps, script, words

pytestmark = pytest.mark.unit

PROSE = tuple(f"The quick brown fox number {n} jumps over the lazy dog." for n in range(50))
QUERIES = ("fox", "lazy dog", "brown", "jumps", "over")


def test_same_texts_have_no_gap():
    assert coverage_gaps(PROSE, PROSE) == ()


def test_queries_that_calibration_lacks_are_listed_with_their_shares():
    assert coverage_gaps(PROSE, (*PROSE, *QUERIES)) == (
        "texts of 1 to 15 characters: 0.0% here, 9.1% there",
    )


def test_queries_that_calibration_has_are_no_gap():
    assert coverage_gaps((*PROSE, *QUERIES), (*PROSE, *QUERIES)) == ()


def test_a_script_is_named():
    russian = ("Кошка спит.", "Где станция метро?", "Погода на завтра")
    (gap, *_) = coverage_gaps((*PROSE, *QUERIES, "a lazy fox jumps"), (*PROSE, *russian))
    assert gap == "texts with Cyrillic letters: 0.0% here, 5.7% there"


def test_characters_that_never_occur_are_a_gap():
    code = tuple(f"x = [{n} ** {n} for y in z if y != {n}]" for n in range(40))
    gaps = coverage_gaps((*PROSE, "a fox jumps over a dog"), code)
    assert [gap.partition("% ")[2] for gap in gaps] == [
        "of the characters there occur here",
        "of the words there occur here",
    ]


def test_words_of_another_field_are_a_gap():
    others = tuple(f"Jumping over rivers, {verb} lions hunt." for verb in ("big", "old", "shy"))
    seen = ("A quick fox, jumps over the lazy dog. " + " ".join("bghloruvy"),)
    (*_, gap) = coverage_gaps(seen * 3, others)
    # "over", the comma and the full stop of eight.
    assert gap == "37.5% of the words there occur here"


def test_words_are_split_as_tokens_begin():
    assert list(words("Reset 42 pass-words: 東京の駅 abc tiếng")) == (
        ["reset", "4", "2", "pass", "-", "words", ":", "東", "京", "の", "駅", "abc", "tiếng"]
    )


@pytest.mark.parametrize("texts", [((), PROSE), (PROSE, QUERIES[:2])])
def test_too_few_texts_say_nothing(texts):
    assert coverage_gaps(*texts) == ()


@pytest.mark.parametrize(
    ("character", "name"),
    [("a", "LATIN"), ("я", "CYRILLIC"), ("站", "CJK"), ("ا", "ARABIC"), ("7", None), ("!", None)],
)
def test_letters_have_a_script(character, name):
    assert script(character) == name
