"""Rounding in which rows of a weight make up for each other."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.quantization.rounding import (
    MOST_MOVED,
    compensated_counts,
    second_moments,
)
from engine_build.quantization.smoothing import Smoothing, channel_scales, round_to_int8

CHANNELS, COLUMNS = 48, 12


@pytest.fixture
def weight():
    return np.random.default_rng(0).standard_normal((CHANNELS, COLUMNS)).astype(np.float32)


@pytest.fixture
def rows():
    """Correlated inputs, a few loud and one that is silent."""
    random = np.random.default_rng(1)
    rows = random.standard_normal((400, 8)) @ random.standard_normal((8, CHANNELS))
    rows = rows + 0.1 * random.standard_normal(rows.shape)
    rows[:, 5] *= 30
    rows[:, 7] = 0
    return rows.astype(np.float32)


def squared_error(rows, weight, counts, steps):
    return float(((rows @ (counts * steps - weight)) ** 2).sum())


def test_products_of_correlated_inputs_lose_less_than_by_the_nearest_counts(weight, rows):
    steps = channel_scales(weight, 1)
    counts = compensated_counts(weight, steps, second_moments(rows, None, 1e-3))
    nearest = squared_error(rows, weight, round_to_int8(weight, steps), steps)
    assert squared_error(rows, weight, counts, steps) < 0.5 * nearest
    # Other rows of the same kind too, and not those alone that were measured.
    others = rows[::-1] + np.roll(rows, 1, axis=0)
    nearest = squared_error(others, weight, round_to_int8(weight, steps), steps)
    assert squared_error(others, weight, counts, steps) < 0.5 * nearest


def test_inputs_without_correlation_get_the_nearest_counts(weight):
    steps = channel_scales(weight, 1)
    counts = compensated_counts(weight, steps, np.diag(np.linspace(1, 9, CHANNELS)))
    assert np.array_equal(counts, round_to_int8(weight, steps))


def test_no_count_moves_further_than_the_bound_or_beyond_int8(weight, rows):
    steps = channel_scales(weight, 1)
    counts = compensated_counts(weight, steps, second_moments(rows, None, 1e-3))
    assert counts.dtype == np.int8 and np.abs(counts.astype(int)).max() <= 127
    assert (np.abs(counts - weight / steps) <= MOST_MOVED + 1e-5).all()
    assert (counts != round_to_int8(weight, steps)).any()


def test_silent_inputs_are_rounded_all_the_same(weight):
    steps = channel_scales(weight, 1)
    counts = compensated_counts(weight, steps, np.zeros((CHANNELS, CHANNELS)))
    assert np.array_equal(counts, round_to_int8(weight, steps))


def test_moments_are_of_divided_values_and_their_rounding(rows):
    scales = np.full(CHANNELS, 2.0, dtype=np.float32)
    smoothing = Smoothing(alpha=0.5, scales=scales, shifts=np.ones(CHANNELS, dtype=np.float32))
    moments = second_moments(rows, smoothing, 0.6)
    exact = rows.astype(np.float64).T @ rows / len(rows) / 4
    assert np.allclose(moments, exact + np.eye(CHANNELS) * 0.03, rtol=1e-5)
