"""Ranges from samples that stream by: thresholds of histograms, and what is smoothed."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from engine_build.errors import InputRefused, SourceFault
from engine_build.quantization.calibration import (
    BINS,
    KEPT_ROWS,
    activation_samples,
    calibrate,
    entropy_threshold,
    percentile_threshold,
)
from engine_build.quantization.layers import Activations, quantizable_layers
from tests.unit.engine_build.quantization.graphs import (
    CHANNELS,
    INNER,
    LOUD,
    WIDTH,
    cnn,
    feed,
    images,
    ranges,
    texts,
    transformer,
)

MAXIMUM = 40.0


@pytest.fixture(scope="module")
def heavy_tail():
    values = np.abs(np.random.default_rng(0).standard_normal(200_000)).astype(np.float32)
    values[:3] = MAXIMUM
    return values


def histogram(values, bins):
    return np.histogram(values, bins=bins, range=(0, MAXIMUM))[0]


def test_entropy_with_2048_bins_clips_a_heavy_tail_where_128_bins_are_the_maximum(heavy_tail):
    assert BINS == 2048
    assert 2.0 < entropy_threshold(histogram(heavy_tail, BINS), MAXIMUM) < 0.5 * MAXIMUM
    assert entropy_threshold(histogram(heavy_tail, 128), MAXIMUM) == MAXIMUM


def test_percentile_leaves_out_the_few_largest(heavy_tail):
    assert 3.0 < percentile_threshold(histogram(heavy_tail, BINS), MAXIMUM) < 5.0


def test_entropy_keeps_a_range_that_is_used_evenly():
    assert entropy_threshold(np.full(BINS, 1000), 1.0) > 0.95


RANDOM = np.random.default_rng(0)


def test_padding_does_not_widen_a_range():
    rows = texts(16, seed=1)
    spoilt = [
        row | {"x": np.where(row["attention_mask"][:, None] == 1, row["x"], 1e4).astype(np.float32)}
        for row in rows
    ]
    # Padding reaches other tokens through the attention, but not the block's own input.
    threshold = ranges(transformer(), spoilt)["x"].threshold
    assert threshold == pytest.approx(ranges(transformer(), rows)["x"].threshold)


def test_tensors_of_a_cnn_have_one_range_for_all_channels_and_no_smoothing():
    rows = images(16, seed=1)
    limits = ranges(cnn(), rows)
    assert [range_.smoothing for range_ in list(limits.values())[:2]] == [None, None]
    assert limits["x"].threshold == pytest.approx(np.abs(feed(rows)["x"]).max())


def test_the_loud_channel_behind_the_gelu_is_smoothed():
    model = transformer()
    behind = next(layer for layer in quantizable_layers(model) if layer.follows_activation_function)
    smoothing = ranges(model, texts(32, seed=1))[behind.activation].smoothing
    assert smoothing is not None
    assert (smoothing.scales.shape, smoothing.scales.argmax()) == ((INNER,), LOUD)


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_histogram_methods_cut_a_tail_that_max_keeps(method):
    rows = images(64, seed=1)
    rows[0]["x"][0, 0, 0] = 90.0
    assert ranges(cnn(), rows, method)["x"].threshold < 60.0
    assert ranges(cnn(), rows, "max")["x"].threshold == pytest.approx(90.0)


def test_the_order_of_batches_and_their_size_decide_no_range():
    model, rows = transformer(), texts(24, seed=1)
    axes = {layer.activation: layer.channel_axis for layer in quantizable_layers(model)}
    activations = Activations(model, axes)

    def ends(rows, size):
        batches = [feed(rows[begin : begin + size]) for begin in range(0, len(rows), size)]
        samples = activation_samples(activations.rows(batches), rows_per_batch=4)
        return np.concatenate([(sample.least, sample.largest) for sample in samples.values()], 1)

    assert np.allclose(ends(rows, 3), ends(rows[::-1], 8), atol=1e-5)


@pytest.mark.parametrize("batches", [4, 64])
def test_kept_rows_do_not_grow_with_the_samples(batches):
    stream = ({"tensor": RANDOM.standard_normal((1000, WIDTH))} for _ in range(batches))
    sample = activation_samples(stream, rows_per_batch=KEPT_ROWS // batches)["tensor"]
    assert len(sample.rows) == KEPT_ROWS


def test_refuses_no_samples():
    with pytest.raises(InputRefused, match="no samples"):
        calibrate(cnn(), quantizable_layers(cnn()), list, batches=0, method="max")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_refuses_nan_and_inf_by_the_tensor_name(value):
    model = cnn()
    bias = model.graph.initializer[1]
    bias.CopyFrom(numpy_helper.from_array(np.full(CHANNELS, value, dtype=np.float32), bias.name))
    with pytest.raises(SourceFault, match=r"tensor t\d becomes NaN or Inf"):
        ranges(model, images(8, seed=1))
