"""Scores of an engine's answers, one for each sample, and bootstrap intervals of their statistics.

A score of 1 is the source model's own answer.

cosine          cosine similarity of the two rows
agreement       1 where the largest value stands at the same place, else 0; of several labels at
                once, 1 where the same ones have a logit above 0; of tokens, the share of a text's
                tokens with the same label, and the mean is that of all tokens
order           share of the other texts of a query that a text stands on the right side of, and the
                mean is that of all pairs; equal scores of the source model ask for no order
accuracy        whether the class is the label's, for both models: the part that is kept of the
                source model's accuracy
relative_error  1 - |row - reference| / |reference|, in L2, at least -1; of one number a row,
                |reference| is at least the mean of all, for a number may be near 0

Resampling is seeded, so that the same numbers give the same interval, and its memory stays flat.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np

from engine_build.datasets.dataset import Array
from onboarding.values import Metric

BLOCK = 4096
"""Rows in double precision, or of a similarity matrix, at once: memory stays flat."""
METRICS_WITH_WORST: frozenset[Metric] = frozenset({"cosine", "relative_error"})
"""The others are 0 or 1 for one sample, so that their worst says nothing."""
RESAMPLES = 2000
CONFIDENCE = 0.95
DRAWS_AT_ONCE = 1 << 21
"""Numbers drawn at once: 16 MiB of indices."""
Interval = tuple[float, float]


Score = Callable[[Array, Array], Array]


def in_blocks(score: Score) -> Score:
    """Score blocks of rows one after the other, in double precision."""

    @wraps(score)
    def score_blocks(rows: Array, reference: Array) -> Array:
        scores: Array = np.concatenate(
            [
                score(
                    rows[begin : begin + BLOCK].astype(np.float64),
                    reference[begin : begin + BLOCK].astype(np.float64),
                )
                for begin in range(0, len(rows), BLOCK)
            ]
        )
        return scores

    return score_blocks


@in_blocks
def cosines(rows: Array, reference: Array) -> Array:
    """Return [samples]; 1 where both rows are zero, 0 where one is."""
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(reference, axis=1)
    products = np.einsum("ij,ij->i", rows, reference)
    both_zero = ~rows.any(axis=1) & ~reference.any(axis=1)
    cosine = np.clip(products / np.where(lengths > 0, lengths, 1.0), -1.0, 1.0)
    score: Array = np.where(both_zero, 1.0, cosine)
    return score


def agreements(rows: Array, reference: Array) -> Array:
    """Return [samples], 0 or 1."""
    return hits(rows, reference.argmax(axis=1))


def label_agreements(rows: Array, reference: Array) -> Array:
    """Return [samples], 0 or 1, of logits of labels that are chosen one by one."""
    same: Array = ((rows > 0) == (reference > 0)).all(axis=1).astype(np.float64)
    return same


def token_hits(rows: Array, reference: Array, classes: int) -> tuple[Array, Array]:
    """Return each sample's tokens of the same label, and its tokens: those whose logits are not 0.

    Rows are [samples, tokens * classes], as `Encoder.aligned` makes them.
    """
    own, source = (array.reshape(len(array), -1, classes) for array in (rows, reference))
    is_token = source.any(axis=2)
    same = (own.argmax(axis=2) == source.argmax(axis=2)) & is_token
    return same.sum(axis=1).astype(np.float64), is_token.sum(axis=1).astype(np.float64)


def ordered_pairs(rows: Array, reference: Array, queries: Array) -> tuple[Array, Array]:
    """Return, for each sample, its pairs in the source model's order, and its pairs.

    `queries` has a number a sample; a pair are two samples of one query with other scores.
    """
    right: Array = np.zeros(len(rows))
    pairs: Array = np.zeros(len(rows))
    for query in np.unique(queries):
        places = np.flatnonzero(queries == query)
        columns = (array[places, 0].astype(np.float64) for array in (rows, reference))
        own, source = (np.sign(np.subtract.outer(column, column)) for column in columns)
        pairs[places] = (source != 0).sum(axis=1)
        right[places] = ((own == source) & (source != 0)).sum(axis=1)
    return right, pairs


def relative_scores(rows: Array, reference: Array) -> Array:
    """Return [samples], -1 to 1."""
    if reference.shape[1] > 1:
        return _relative_scores(rows, reference)
    floor = np.abs(reference).mean()
    lengths = np.maximum(np.abs(reference[:, 0]), floor if floor > 0 else 1.0)
    score: Array = np.maximum(1.0 - np.abs(rows - reference)[:, 0] / lengths, -1.0)
    return score.astype(np.float64)


@in_blocks
def _relative_scores(rows: Array, reference: Array) -> Array:
    lengths = np.linalg.norm(reference, axis=1)
    errors = np.linalg.norm(rows - reference, axis=1)
    of_zero = np.where(errors > 0, 2.0, 0.0)
    relative = np.where(lengths > 0, errors / np.where(lengths > 0, lengths, 1.0), of_zero)
    score: Array = np.maximum(1.0 - relative, -1.0)
    return score


def hits(rows: Array, labels: Array) -> Array:
    """Return [samples]: 1 where the class with the largest value is the label's, else 0."""
    right: Array = (rows.argmax(axis=1) == labels).astype(np.float64)
    return right


def nearest(rows: Array, block: int = BLOCK) -> Array:
    """Return the most similar other row of each row, by cosine, one block of rows at a time."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = (rows / np.maximum(lengths, 1e-12)).astype(np.float32)
    best: Array = np.empty(len(unit), dtype=np.int64)
    for begin in range(0, len(unit), block):
        similarity = unit[begin : begin + block] @ unit.T
        own = np.arange(len(similarity))
        similarity[own, own + begin] = -np.inf
        best[begin : begin + block] = similarity.argmax(axis=1)
    return best


def mean_interval(values: Array) -> Interval:
    """Return the interval of the mean; equal values give one without width."""
    return bootstrap_interval(len(values), lambda drawn: values[drawn].mean(axis=1))


def median_interval(values: Array) -> Interval:
    """Return the interval of the median."""
    return bootstrap_interval(len(values), lambda drawn: np.median(values[drawn], axis=1))


def ratio_interval(above: Array, below: Array) -> Interval:
    """Return the interval of the ratio of two means over the same samples, drawn in pairs.

    Draws whose lower mean is 0 are left out.
    """

    def ratio(drawn: Array) -> Array:
        means: Array = below[drawn].mean(axis=1)
        selected = means > 0
        ratios: Array = above[drawn].mean(axis=1)[selected] / means[selected]
        return ratios

    return bootstrap_interval(len(above), ratio)


def bootstrap_interval(count: int, statistic: Callable[[Array], Array]) -> Interval:
    """Return the percentile interval of a statistic over resampled samples.

    `statistic` takes indices [draws, samples] and returns a value a draw.
    """
    random = np.random.default_rng(0)
    at_once = max(1, min(RESAMPLES, DRAWS_AT_ONCE // count))
    values = [
        statistic(random.integers(0, count, size=(min(at_once, RESAMPLES - begin), count)))
        for begin in range(0, RESAMPLES, at_once)
    ]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(values), [tail, 1 - tail])
    return float(low), float(high)
