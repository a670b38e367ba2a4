"""Lengths: fitted to declared means and percentiles, the same for the same seed."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onboarding.text_generation.spec import ContextSpec
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.generation.lengths import (
    lengths_of,
    log_normal,
    parse_lengths,
)

CONTEXT = ContextSpec(
    max_model_len=8192, prompt_p95=3000, prompt_mean=1200, output_p95=400, output_mean=150
)


@given(st.floats(1, 1e5), st.floats(1.001, 3.86))
def test_fit_has_the_declared_mean_and_p95(mean, ratio):
    fitted = log_normal(mean, mean * ratio)
    assert fitted.mean == pytest.approx(mean, rel=1e-6)
    assert fitted.p95 == pytest.approx(mean * ratio, rel=1e-6)


def test_samples_have_the_declared_mean_and_p95():
    lengths, chance = lengths_of(CONTEXT), random.Random(7)
    pairs = [lengths.sample(chance) for _ in range(20_000)]
    for place, mean, p95 in ((0, 1200, 3000), (1, 150, 400)):
        values = sorted(pair[place] for pair in pairs)
        assert statistics.fmean(values) == pytest.approx(mean, rel=0.03)
        assert values[19_000] == pytest.approx(p95, rel=0.05)
    assert all(prompt + output <= 8192 for prompt, output in pairs)


def test_a_mean_alone_gives_one_length():
    assert log_normal(300, 300).sigma == 0 and log_normal(300, 200).mean == pytest.approx(200)


def test_a_p95_far_above_the_mean_keeps_the_p95():
    fitted = log_normal(100, 1000)
    assert fitted.p95 == pytest.approx(1000) and fitted.mean > 100


@pytest.mark.parametrize(("text", "pair"), [("rag", (5000, 500)), ("512:128", (512, 128))])
def test_lengths_by_name_or_number(text, pair):
    assert parse_lengths(text, CONTEXT).sample(random.Random(1)) == pair


@pytest.mark.parametrize("text", ["", "chats", "512", "512:", "0:5", "5:-1", "a:b"])
def test_refuses_other_lengths(text):
    with pytest.raises(RoundhouseError, match=r"--input .*: give PROMPT:OUTPUT"):
        parse_lengths(text, None)


def test_refuses_lengths_over_the_context():
    with pytest.raises(RoundhouseError, match=r"than the model's context\.max_model_len"):
        parse_lengths("long", CONTEXT)


@pytest.mark.parametrize(
    ("most", "words"), [(None, (32, 544)), (4096, (32, 544)), (512, (32, 127)), (16, (1, 3))]
)
def test_prompts_that_count_tokens_fit_the_longest_request(most, words):
    context = None if most is None else CONTEXT.model_copy(update={"max_model_len": most})
    assert parse_lengths("8:4", context).calibration_words == words
