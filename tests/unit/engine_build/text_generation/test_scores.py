"""Scores against plain arithmetic, and intervals against what is known of them."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.errors import InputRefused
from engine_build.text_generation.scores import (
    SampleScore,
    divergence,
    score_drop,
    score_sample,
)
from onboarding.text_generation.task_file import least_drop

pytestmark = pytest.mark.unit


def log_softmax(rows):
    return rows - np.log(np.exp(rows).sum(1, keepdims=True))


@pytest.fixture
def random():
    return np.random.default_rng(5)


def test_a_sample_is_scored_as_the_definitions_say(random):
    reference, candidate = (log_softmax(random.normal(0, 2, (7, 50))) for _ in range(2))
    targets = random.integers(0, 50, 7)
    score = score_sample(reference, candidate, targets)
    expected = sum(
        np.exp(p) * (p - q) for p, q in zip(reference.ravel(), candidate.ravel(), strict=True)
    )
    assert score.kl == pytest.approx(expected, rel=1e-5)
    assert score.agree == sum(
        int(a.argmax() == b.argmax()) for a, b in zip(reference, candidate, strict=True)
    )
    assert score.reference_nll == pytest.approx(
        -sum(reference[i, t] for i, t in enumerate(targets)), rel=1e-5
    )
    assert score.nll == pytest.approx(-sum(candidate[i, t] for i, t in enumerate(targets)))
    first, second = (
        score_sample(reference[part], candidate[part], targets[part])
        for part in (slice(3), slice(3, None))
    )
    assert first + second == SampleScore(
        tokens=7,
        kl=pytest.approx(score.kl),
        agree=score.agree,
        reference_nll=pytest.approx(score.reference_nll),
        nll=pytest.approx(score.nll),
    )
    itself = score_sample(candidate.astype(np.float16), candidate, targets)
    assert itself.agree >= 6 and itself.kl / 7 < 1e-5


def sample(tokens, kl, agree=0.9, nll=3.0, reference=2.9):
    return SampleScore(
        tokens=tokens,
        kl=kl * tokens,
        agree=round(agree * tokens),
        reference_nll=reference * tokens,
        nll=nll * tokens,
    )


def test_means_are_of_tokens_and_intervals_of_paired_samples(random):
    found = divergence([sample(10, 1.0), sample(90, 0.0)])
    assert found.kl_per_token.value == pytest.approx(0.1)
    assert (found.tokens, found.samples) == (100, 2)
    assert found.perplexity_ratio.value == pytest.approx(np.exp(0.1))
    assert found.top1.value == pytest.approx(0.9)
    # Texts of any difficulty do not widen the ratio.
    levels = random.uniform(1, 6, 60)
    hard = [sample(100, 0.05, nll=level + 0.02, reference=level) for level in levels]
    ratio = divergence(hard).perplexity_ratio
    assert ratio.high - ratio.low < 1e-9 and ratio.value == pytest.approx(np.exp(0.02))
    scores = [sample(50, kl) for kl in random.exponential(0.1, 30)]
    assert divergence(scores) == divergence(scores)
    assert divergence(scores).kl_per_token.low < divergence(scores).kl_per_token.high


def test_intervals_hold_the_mean_about_as_often_as_they_say(random):
    """Of 200 draws of 40 samples whose KL is exponential around 0.1, between 88 and 99 %."""
    held = 0
    for _ in range(200):
        found = divergence([sample(100, kl) for kl in random.exponential(0.1, 40)])
        held += found.kl_per_token.low <= 0.1 <= found.kl_per_token.high
    assert 176 <= held <= 198


def test_a_drop_of_answers_that_are_alike_is_as_sure_as_its_items_are_many():
    right = [True, False] * 20
    same = score_drop(right, right)
    assert (same.value, same.high) == (0.0, pytest.approx(least_drop(40)))
    assert same.low == pytest.approx(-same.high)
    worse = [value and place > 10 for place, value in enumerate(right)]
    drop = score_drop(right, worse)
    assert drop.value == pytest.approx(6 / 40) and 0.0 <= drop.low < drop.value < drop.high
    assert score_drop([True], [True]).high > 0.9 and score_drop([True], [False]).high == 1.0


@pytest.mark.parametrize("count", [20, 150])
def test_interval_of_a_drop_holds_the_true_one_as_often_as_it_says(random, count):
    held = 0
    for _ in range(400):
        draws = random.random(count)
        reference, candidate = draws < 0.8, (draws < 0.75) | (draws > 0.98)
        drop = score_drop(reference.tolist(), candidate.tolist())
        held += drop.low <= 0.03 <= drop.high
    assert held >= 372


def test_answers_that_are_no_numbers_are_as_wrong_as_can_be(random):
    reference = log_softmax(random.normal(0, 2, (4, 9)))
    candidate, targets = reference.copy(), np.zeros(4, int)
    candidate[2] = np.nan
    found = divergence([score_sample(reference, candidate, targets)] * 3)
    assert found.kl_per_token.low > 10 and found.perplexity_ratio.low > 1e9
    with pytest.raises(InputRefused, match="numbers that are none"):
        score_sample(candidate, reference, targets)
