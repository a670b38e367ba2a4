"""How far one model's answers lie from another's: scores of samples, and their intervals.

Log-probabilities are compared token by token over the whole vocabulary. Their intervals are
percentile bootstraps over samples, both models on the same resampled ones; resampling is seeded, so
that the same numbers give the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine_build.errors import InputRefused
from engine_build.evaluation.scores import bootstrap_interval
from onboarding.text_generation.checkpoint_lock import Interval, KvGate
from onboarding.text_generation.task_file import MORE_ITEMS, NORMAL_95

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class SampleScore:
    """Sums over the tokens of one sample.

    `kl`: Kullback-Leibler divergence of the candidate from the reference, in nats. `agree`: tokens
    where both have the same first choice. `reference_nll`, `nll`: negative log-likelihood of the
    text.
    """

    tokens: int
    kl: float
    agree: int
    reference_nll: float
    nll: float

    def __add__(self, other: SampleScore) -> SampleScore:
        """Return the sums of both parts of a sample."""
        return SampleScore(
            tokens=self.tokens + other.tokens,
            kl=self.kl + other.kl,
            agree=self.agree + other.agree,
            reference_nll=self.reference_nll + other.reference_nll,
            nll=self.nll + other.nll,
        )


WORST = -100.0
"""A log-probability, in nats, for an answer that is no number."""


def score_sample(reference: Array, candidate: Array, targets: Array) -> SampleScore:
    """Score log-probabilities [tokens, vocabulary] of both models; targets [tokens] came next.

    The reference may be of half precision; its probabilities are normalized again. Raises
    InputRefused where it has numbers that are none; the candidate's count as WORST.
    """
    # Not a number, or no probability at all: as wrong as can be, and counted as such.
    candidate = np.nan_to_num(candidate, nan=WORST, posinf=WORST, neginf=WORST)
    expected = np.asarray(reference, np.float32)
    if not np.isfinite(expected).all():
        raise InputRefused(
            "the source answers a held-out text with numbers that are none (NaN): its weights, or "
            "their conversion, are broken; nothing can be compared with them"
        )
    expected = expected - _log_sum(expected)
    rows = np.arange(len(targets))
    divergence = np.exp(expected) * (expected - candidate)
    return SampleScore(
        tokens=len(targets),
        # Rounding may leave a sum of nearly equal numbers a little below zero.
        kl=max(0.0, float(divergence.sum(dtype=np.float64))),
        agree=int((expected.argmax(1) == candidate.argmax(1)).sum()),
        reference_nll=-float(expected[rows, targets].sum(dtype=np.float64)),
        nll=-float(candidate[rows, targets].sum(dtype=np.float64)),
    )


def divergence(scores: Sequence[SampleScore]) -> KvGate:
    """Return the comparison of all samples; KL and agreement are means of all tokens."""
    columns = np.array(
        [(s.tokens, s.kl, s.agree, s.reference_nll, s.nll) for s in scores], np.float64
    )

    def perplexity_ratio(sums: Array) -> Array:
        ratio: Array = np.exp((sums[..., 4] - sums[..., 3]) / sums[..., 0])
        return ratio

    return KvGate(
        kl_per_token=_interval(columns, lambda sums: sums[..., 1] / sums[..., 0]),
        top1=_interval(columns, lambda sums: sums[..., 2] / sums[..., 0]),
        perplexity_ratio=_interval(columns, perplexity_ratio),
    )


def score_drop(reference: Sequence[bool], candidate: Sequence[bool]) -> Interval:
    """Return how far the share of right answers falls, item by item, with its interval.

    A bootstrap knows no doubt where no answer changed, however few there are. So the interval is
    that of Bonett and Price (2012) for the difference of paired proportions: Wald's, with one more
    item lost and one more won.
    """
    pairs = list(zip(reference, candidate, strict=True))
    lost, won = (sum(pair == kind for pair in pairs) for kind in ((True, False), (False, True)))
    count = len(pairs) + MORE_ITEMS
    shares = (lost + 1) / count, (won + 1) / count
    middle = shares[0] - shares[1]
    half = NORMAL_95 * math.sqrt((sum(shares) - middle**2) / count)
    return Interval(
        value=(lost - won) / len(pairs), low=max(-1.0, middle - half), high=min(1.0, middle + half)
    )


def _interval(columns: Array, statistic: Callable[[Array], Array]) -> Interval:
    """Return a statistic of column sums [..., columns], and its interval over resampled rows."""
    low, high = bootstrap_interval(
        len(columns), lambda drawn: statistic(columns[drawn].sum(axis=1))
    )
    return Interval(value=float(statistic(columns.sum(0))), low=low, high=high)


def _log_sum(rows: Array) -> Array:
    most = rows.max(1, keepdims=True)
    found: Array = most + np.log(np.exp(rows - most).sum(1, keepdims=True))
    return found
