"""Channels that are shifted and divided before INT8, and the products that follow."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.quantization.smoothing import (
    ActivationSample,
    best_smoothing,
    smoothing_scales,
    tensor_scale,
)

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((16, 8)).astype(np.float32)
EVEN = RANDOM.uniform(-1, 1, (256, 16)).astype(np.float32)


def sample(rows):
    return ActivationSample(least=rows.min(axis=0), largest=rows.max(axis=0), rows=rows)


def one_sided():
    """Values of a GELU: most near zero, the rest far above it."""
    rows = RANDOM.exponential(1.0, (512, 16)).astype(np.float32) * 20
    return np.where(RANDOM.random(rows.shape) < 0.7, np.float32(-0.1), rows)


def test_a_loud_channel_gives_its_range_to_the_weight():
    scales = smoothing_scales(np.array([100.0, 1.0]), [np.ones((2, 3), dtype=np.float32)], 0.7)
    assert scales[0] / scales[1] == pytest.approx(100**0.7, rel=1e-4)


def test_channels_that_are_alike_need_no_multiplication():
    weight = WEIGHT / np.abs(WEIGHT).max(axis=1, keepdims=True)
    assert best_smoothing(sample(EVEN), [weight]) is None


def test_a_loud_channel_is_smoothed_most_and_is_not_shifted():
    loud = EVEN.copy()
    loud[:, 2] *= 50
    smoothing = best_smoothing(sample(loud), [WEIGHT])
    assert smoothing is not None and smoothing.scales.argmax() == 2
    assert smoothing.shifts is None


def test_a_channel_that_is_always_zero_divides_by_no_zero():
    silent = EVEN.copy()
    silent[:, :2] = 0
    maxima = np.abs(silent).max(axis=0)
    assert (smoothing_scales(maxima, [WEIGHT], 0.95) > 0).all()


def test_values_of_one_sign_are_shifted_by_whole_steps_to_half_the_range():
    kept = sample(one_sided())
    smoothing = best_smoothing(kept, [WEIGHT])
    assert smoothing is not None and smoothing.shifts is not None
    shifted = smoothing.apply(kept.rows)
    assert shifted.max() == pytest.approx(-shifted.min(), rel=0.2)
    steps = smoothing.shifts / smoothing.scales / tensor_scale(kept.smoothed_maximum(smoothing))
    assert np.allclose(steps, np.rint(steps), atol=1e-3)


def test_the_constant_is_what_the_shift_takes_from_a_product():
    kept = sample(one_sided())
    smoothing = best_smoothing(kept, [WEIGHT])
    scaled = WEIGHT * smoothing.scales[:, None]
    products = smoothing.apply(kept.rows) @ scaled + smoothing.constant(scaled)
    assert np.allclose(products, kept.rows @ WEIGHT, atol=1e-2)
