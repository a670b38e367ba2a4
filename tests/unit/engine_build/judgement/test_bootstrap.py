"""Intervals by resampling."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.judgement.bootstrap import mean_interval, median_interval, ratio_interval

VALUES = np.random.default_rng(1).normal(5.0, 2.0, size=400)


def test_same_values_give_the_same_interval():
    assert mean_interval(VALUES) == mean_interval(VALUES.copy())
    assert median_interval(VALUES) == median_interval(VALUES.copy())


def test_mean_interval_is_that_of_the_normal_approximation():
    reach = 1.96 * VALUES.std() / np.sqrt(400)
    assert mean_interval(VALUES) == pytest.approx(
        (VALUES.mean() - reach, VALUES.mean() + reach), abs=0.02
    )


def test_interval_does_not_depend_on_how_many_draws_fit_into_memory():
    assert mean_interval(VALUES, draws_at_once=400 * 3) == pytest.approx(
        mean_interval(VALUES), abs=1e-12
    )


def test_values_that_are_all_the_same_have_an_interval_without_width():
    assert mean_interval(np.ones(100)) == (1.0, 1.0)


def test_more_samples_give_a_narrower_interval():
    few, many = mean_interval(VALUES[:50]), mean_interval(VALUES)
    assert few[1] - few[0] > 2 * (many[1] - many[0])


def test_ratio_is_drawn_in_pairs():
    below = np.random.default_rng(2).integers(0, 2, size=200).astype(float)
    assert ratio_interval(below, below) == (1.0, 1.0)


def test_ratio_leaves_draws_out_that_have_nothing_to_divide_by():
    below = np.zeros(100)
    below[0] = 1
    assert ratio_interval(below, below) == (1.0, 1.0)
