"""Where histograms are cut."""

from __future__ import annotations

import numpy as np
import pytest
from onnxruntime.quantization.calibrate import HistogramCollector

from engine_build.int8.thresholds import BINS, entropy_threshold, percentile_threshold

MAXIMUM = 40.0


@pytest.fixture(scope="module")
def heavy_tail():
    values = np.abs(np.random.default_rng(0).standard_normal(200_000)).astype(np.float32)
    values[:3] = MAXIMUM
    return values


def histogram(values, bins):
    return np.histogram(values, bins=bins, range=(0, MAXIMUM))[0]


def test_entropy_with_2048_bins_clips_a_heavy_tail_where_max_does_not(heavy_tail):
    assert BINS == 2048
    assert 2.0 < entropy_threshold(histogram(heavy_tail, BINS), MAXIMUM) < 0.5 * MAXIMUM


def test_entropy_with_128_bins_is_the_maximum_under_another_name(heavy_tail):
    assert entropy_threshold(histogram(heavy_tail, 128), MAXIMUM) == MAXIMUM


@pytest.mark.parametrize(("bins", "clips"), [(128, False), (BINS, True)])
def test_onnx_runtime_own_entropy_clips_only_once_it_has_more_bins_than_its_default(
    heavy_tail, bins, clips
):
    collector = HistogramCollector("entropy", True, bins, 128, 99.999, "same")
    collector.collect({"tensor": [heavy_tail]})
    _, high = collector.compute_collection_result()["tensor"][:2]
    assert (high < 0.9 * MAXIMUM) == clips


def test_percentile_leaves_out_the_few_largest(heavy_tail):
    assert 3.0 < percentile_threshold(histogram(heavy_tail, BINS), MAXIMUM) < 5.0


def test_entropy_keeps_a_range_that_is_used_evenly():
    assert entropy_threshold(np.full(BINS, 1000), 1.0) > 0.95
