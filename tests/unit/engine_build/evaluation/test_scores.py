"""Scores of samples: 1 is the source model's own answer, in every metric; their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.evaluation.scores import (
    agreements,
    cosines,
    hits,
    mean_interval,
    median_interval,
    nearest,
    ordered_pairs,
    ratio_interval,
    relative_scores,
)

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((300, 16)).astype(np.float32)


@pytest.mark.parametrize("metric", [cosines, agreements, relative_scores])
def test_same_rows_score_one_and_opposite_rows_least(metric):
    assert metric(ROWS, ROWS) == pytest.approx(np.ones(300), abs=1e-12)
    assert metric(-ROWS, ROWS).max() == pytest.approx(0.0 if metric is agreements else -1.0)


def test_cosine_forgets_length_and_zero_rows_score_by_whether_both_are_zero():
    assert cosines(3 * ROWS, ROWS).min() == pytest.approx(1.0)
    assert relative_scores(1.25 * ROWS, ROWS) == pytest.approx(np.full(300, 0.75), abs=1e-6)
    rows, reference = np.array([[0.0] * 4, [0.0] * 4, [1.0] * 4]), np.zeros((3, 4))
    reference[1] = 1
    assert cosines(rows, reference).tolist() == [1, 0, 0]
    assert relative_scores(rows, reference).tolist() == [1, 0, -1]
    reference = np.array([[0.001], [1.999]])
    scores = relative_scores(reference + 0.1, reference)
    assert scores == pytest.approx([0.9, 1 - 0.1 / 1.999]), "relative to the mean of all at least"


def test_agreement_and_hits_look_at_the_largest_value():
    rows = np.array([[0.1, 0.9], [0.8, 0.2], [0.4, 0.6]])
    assert agreements(rows, np.array([[0.0, 1.0], [0.0, 1.0], [5.0, 6.0]])).tolist() == [1, 0, 1]
    assert hits(rows, np.array([1, 1, 1])).tolist() == [1, 0, 1]


def test_nearest_row_is_never_itself_whatever_the_block():
    whole = nearest(ROWS, block=1000)
    assert (whole != np.arange(300)).all()
    assert (nearest(ROWS, block=7) == whole).all()
    similarity = ROWS @ ROWS.T / np.outer(*[np.linalg.norm(ROWS, axis=1)] * 2)
    np.fill_diagonal(similarity, -2)
    assert (whole == similarity.argmax(axis=1)).all()


VALUES = np.random.default_rng(1).normal(5.0, 2.0, size=400)


def test_interval_is_that_of_the_normal_approximation_and_narrows_with_the_samples():
    mean, reach = VALUES.mean(), 1.96 * VALUES.std() / np.sqrt(400)
    assert mean_interval(VALUES) == pytest.approx((mean - reach, mean + reach), abs=0.02)
    few, many = mean_interval(VALUES[:50]), mean_interval(VALUES)
    assert few[1] - few[0] > 2 * (many[1] - many[0])
    assert mean_interval(np.ones(100)) == (1.0, 1.0)
    for interval in (mean_interval, median_interval):
        assert interval(VALUES) == interval(VALUES.copy())


@pytest.mark.parametrize(
    "below",
    [np.random.default_rng(2).integers(0, 2, size=200).astype(float), np.eye(1, 100)[0]],
    ids=["drawn in pairs", "draws with nothing to divide by are left out"],
)
def test_ratio_of_equal_samples_is_one_in_every_draw(below):
    assert ratio_interval(below, below) == (1.0, 1.0)


def test_order_is_of_the_pairs_of_one_query_that_the_source_model_orders():
    reference = np.array([[0.1], [0.2], [0.2], [0.9], [0.8]])
    rows = np.array([[1.0], [3.0], [0.5], [7.0], [8.0]])
    right, pairs = ordered_pairs(rows, reference, np.array([0, 0, 0, 1, 1]))
    assert pairs.tolist() == [2, 1, 1, 1, 1]
    assert right.tolist() == [1, 1, 0, 0, 0]
