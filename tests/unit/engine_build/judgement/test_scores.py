"""Scores of samples: 1 is the source model's own answer, in every metric."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.judgement.scores import agreements, cosines, hits, nearest, relative_scores

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((300, 16)).astype(np.float32)


@pytest.mark.parametrize("metric", [cosines, agreements, relative_scores])
def test_same_rows_score_one(metric):
    assert metric(ROWS, ROWS) == pytest.approx(np.ones(300), abs=1e-12)


@pytest.mark.parametrize("metric", [cosines, agreements, relative_scores])
def test_opposite_rows_score_least(metric):
    assert metric(-ROWS, ROWS).max() == pytest.approx(0.0 if metric is agreements else -1.0)


def test_cosine_forgets_length_and_relative_error_does_not():
    assert cosines(3 * ROWS, ROWS).min() == pytest.approx(1.0)
    assert relative_scores(1.25 * ROWS, ROWS) == pytest.approx(np.full(300, 0.75), abs=1e-6)


def test_zero_rows_score_by_whether_both_are_zero():
    zero, one = np.zeros((1, 4)), np.ones((1, 4))
    assert (cosines(zero, zero)[0], cosines(zero, one)[0], cosines(one, zero)[0]) == (1, 0, 0)
    assert (
        relative_scores(zero, zero)[0],
        relative_scores(one, zero)[0],
        relative_scores(zero, one)[0],
    ) == (1, -1, 0)


def test_agreement_and_hits_look_at_the_largest_value():
    found = np.array([[0.1, 0.9], [0.8, 0.2], [0.4, 0.6]])
    assert agreements(found, np.array([[0.0, 1.0], [0.0, 1.0], [5.0, 6.0]])).tolist() == [1, 0, 1]
    assert hits(found, np.array([1, 1, 1])).tolist() == [1, 0, 1]


def test_nearest_row_is_never_itself_whatever_the_block():
    whole = nearest(ROWS, block=1000)
    assert (whole != np.arange(300)).all()
    assert (nearest(ROWS, block=7) == whole).all()
    similarity = ROWS @ ROWS.T / np.outer(*[np.linalg.norm(ROWS, axis=1)] * 2)
    np.fill_diagonal(similarity, -2)
    assert (whole == similarity.argmax(axis=1)).all()
