"""Ranges that move from activations into weights."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.int8.smoothing import best_smoothing, smoothing_scales

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((16, 8)).astype(np.float32)
EVEN = RANDOM.uniform(-1, 1, (256, 16)).astype(np.float32)


def largest(rows):
    return np.abs(rows).max(axis=0)


def test_a_loud_channel_gives_its_range_to_the_weight():
    scales = smoothing_scales(np.array([100.0, 1.0]), [np.ones((2, 3), dtype=np.float32)], 0.7)
    assert scales[0] / scales[1] == pytest.approx(100**0.7, rel=1e-4)


def test_channels_that_are_alike_need_no_multiplication():
    assert (
        best_smoothing(largest(EVEN), EVEN, [WEIGHT / np.abs(WEIGHT).max(axis=1, keepdims=True)])
        is None
    )


def test_a_loud_channel_is_smoothed_and_the_products_come_out_nearer():
    loud = EVEN.copy()
    loud[:, 2] *= 50
    found = best_smoothing(largest(loud), loud, [WEIGHT])
    assert found is not None
    assert found.scales[2] == found.scales.max()


def test_a_channel_that_is_always_zero_divides_by_no_zero():
    silent = EVEN.copy()
    silent[:, :2] = 0
    assert (smoothing_scales(largest(silent), [WEIGHT], 0.95) > 0).all()
