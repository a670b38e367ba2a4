"""Ranges from samples that stream by, smoothed channels, and weights rounded for each other."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from engine_build.errors import SourceFault
from engine_build.quantization.calibration import (
    BINS,
    MOST_MOVED,
    ActivationSample,
    best_smoothing,
    channel_scales,
    compensated_counts,
    entropy_threshold,
    percentile_threshold,
    round_to_int8,
    second_moments,
    smoothing_scales,
    tensor_scale,
)
from tests.unit.engine_build.quantization.graphs import (
    CHANNELS,
    cnn,
    images,
    ranges,
)

MAXIMUM = 40.0
RANDOM = np.random.default_rng(0)


def test_entropy_and_percentile_clip_a_heavy_tail_and_128_bins_would_not():
    values = np.abs(np.random.default_rng(0).standard_normal(200_000)).astype(np.float32)
    values[:3] = MAXIMUM
    fine, coarse = (np.histogram(values, bins=bins, range=(0, MAXIMUM))[0] for bins in (BINS, 128))
    assert BINS == 2048
    assert 2.0 < entropy_threshold(fine, MAXIMUM) < 0.5 * MAXIMUM
    assert entropy_threshold(coarse, MAXIMUM) == MAXIMUM
    assert 3.0 < percentile_threshold(fine, MAXIMUM) < 5.0
    assert entropy_threshold(np.full(BINS, 1000), 1.0) > 0.95, "a range that is used evenly"


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_histogram_methods_cut_a_tail_that_max_keeps(method):
    rows = images(64, seed=1)
    rows[0]["x"][0, 0, 0] = 90.0
    assert ranges(cnn(), rows, method)["x"].threshold < 60.0
    assert ranges(cnn(), rows, "max")["x"].threshold == pytest.approx(90.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_refuses_nan_and_inf_by_the_tensor_name(value):
    model = cnn()
    bias = model.graph.initializer[1]
    bias.CopyFrom(numpy_helper.from_array(np.full(CHANNELS, value, dtype=np.float32), bias.name))
    with pytest.raises(SourceFault, match=r"tensor t\d becomes NaN or Inf"):
        ranges(model, images(8, seed=1))


WEIGHT = RANDOM.standard_normal((16, 8)).astype(np.float32)
EVEN = RANDOM.uniform(-1, 1, (256, 16)).astype(np.float32)


def sample(rows):
    return ActivationSample(least=rows.min(axis=0), largest=rows.max(axis=0), rows=rows)


def test_a_loud_channel_gives_its_range_to_the_weight_and_no_scale_is_zero():
    scales = smoothing_scales(np.array([100.0, 1.0]), [np.ones((2, 3), dtype=np.float32)], 0.7)
    assert scales[0] / scales[1] == pytest.approx(100**0.7, rel=1e-4)
    assert (smoothing_scales(np.array([0.0] * 2 + [1.0] * 14), [WEIGHT], 0.95) > 0).all()
    loud = EVEN * np.where(np.arange(16) == 2, np.float32(50), np.float32(1))
    smoothing = best_smoothing(sample(loud), [WEIGHT])
    assert smoothing is not None and smoothing.scales.argmax() == 2 and smoothing.shifts is None
    alike = WEIGHT / np.abs(WEIGHT).max(axis=1, keepdims=True)
    assert best_smoothing(sample(EVEN), [alike]) is None


def test_values_of_one_sign_are_shifted_by_whole_steps_and_the_constant_gives_it_back():
    """Values of a GELU: most near zero, the rest far above it."""
    rows = RANDOM.exponential(1.0, (512, 16)).astype(np.float32) * 20
    kept = sample(np.where(RANDOM.random(rows.shape) < 0.7, np.float32(-0.1), rows))
    smoothing = best_smoothing(kept, [WEIGHT])
    assert smoothing is not None and smoothing.shifts is not None
    shifted = smoothing.apply(kept.rows)
    assert shifted.max() == pytest.approx(-shifted.min(), rel=0.2)
    steps = smoothing.shifts / smoothing.scales / tensor_scale(kept.smoothed_maximum(smoothing))
    assert np.allclose(steps, np.rint(steps), atol=1e-3)
    scaled = WEIGHT * smoothing.scales[:, None]
    products = smoothing.apply(kept.rows) @ scaled + smoothing.constant(scaled)
    assert np.allclose(products, kept.rows @ WEIGHT, atol=1e-2)


INPUTS, COLUMNS = 48, 12
ROUNDED = np.random.default_rng(0).standard_normal((INPUTS, COLUMNS)).astype(np.float32)


@pytest.fixture(scope="module")
def correlated():
    """Correlated inputs, a loud one and one that is silent."""
    random = np.random.default_rng(1)
    rows = random.standard_normal((400, 8)) @ random.standard_normal((8, INPUTS))
    rows = rows + 0.1 * random.standard_normal(rows.shape)
    rows[:, 5] *= 30
    rows[:, 7] = 0
    return rows.astype(np.float32)


def test_products_of_correlated_inputs_lose_less_than_by_the_nearest_counts(correlated):
    steps = channel_scales(ROUNDED, 1)
    counts = compensated_counts(ROUNDED, steps, second_moments(correlated, None, 1e-3))
    nearest = round_to_int8(ROUNDED, steps)
    # Other rows of the same kind too, and not those alone that were measured.
    for rows in (correlated, correlated[::-1] + np.roll(correlated, 1, axis=0)):
        lost, most = (
            float(((rows @ (item * steps - ROUNDED)) ** 2).sum()) for item in (counts, nearest)
        )
        assert lost < 0.5 * most
    assert counts.dtype == np.int8 and np.abs(counts.astype(int)).max() <= 127
    assert (np.abs(counts - ROUNDED / steps) <= MOST_MOVED + 1e-5).all()
    assert (counts != nearest).any()
