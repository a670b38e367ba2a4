"""Ranges from samples that stream by."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from engine_build.errors import InputRefused, SourceFault
from engine_build.int8.activations import Activations
from engine_build.int8.calibration import KEPT_ROWS, calibrated, first_pass
from engine_build.int8.layers import layers
from tests.unit.engine_build.int8.graphs import INNER, LOUD, WIDTH, cnn, images, texts, transformer


def feed(rows):
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def ranges(model, rows, method="max", batch=8):
    batches = [rows[begin : begin + batch] for begin in range(0, len(rows), batch)]
    return calibrated(
        model, layers(model), lambda: map(feed, batches), batches=len(batches), method=method
    )


def test_padding_does_not_widen_a_range():
    rows = texts(16, seed=1)
    spoilt = [
        row | {"x": np.where(row["attention_mask"][:, None] == 1, row["x"], 1e4).astype(np.float32)}
        for row in rows
    ]
    # Padding reaches other tokens through the attention, but not the block's own input.
    assert ranges(transformer(), spoilt)["x"].threshold == pytest.approx(
        ranges(transformer(), rows)["x"].threshold
    )


def test_tensors_of_a_cnn_have_one_range_for_all_channels_and_no_smoothing():
    found = ranges(cnn(), images(16, seed=1))
    assert all(each.smoothing is None for each in list(found.values())[:2])
    assert found["x"].threshold == pytest.approx(np.abs(feed(images(16, seed=1))["x"]).max())


def test_the_loud_channel_behind_the_gelu_is_smoothed():
    model = transformer()
    behind = next(layer for layer in layers(model) if layer.follows_activation_function)
    smoothing = ranges(model, texts(32, seed=1))[behind.activation].smoothing
    assert smoothing is not None
    assert smoothing.scales.shape == (INNER,)
    assert smoothing.scales.argmax() == LOUD


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_histogram_methods_cut_a_tail_that_max_keeps(method):
    rows = images(64, seed=1)
    rows[0]["x"][0, 0, 0] = 90.0
    assert ranges(cnn(), rows, method)["x"].threshold < 60.0
    assert ranges(cnn(), rows, "max")["x"].threshold == pytest.approx(90.0)


def test_the_order_of_batches_and_their_size_decide_no_maximum():
    rows = texts(24, seed=1)
    found, other = first_passes(rows, 3), first_passes(rows[::-1], 8)
    assert all(np.allclose(found[name].maxima, other[name].maxima, atol=1e-5) for name in found)


def first_passes(rows, batch):
    model = transformer()
    activations = Activations(
        model, {layer.activation: layer.channel_axis for layer in layers(model)}
    )
    batches = [feed(rows[begin : begin + batch]) for begin in range(0, len(rows), batch)]
    return first_pass(activations.rows(batches), rows_per_batch=4)


def test_what_is_kept_does_not_grow_with_the_samples():
    def stream(batches):
        random = np.random.default_rng(0)
        return ({"tensor": random.standard_normal((1000, WIDTH))} for _ in range(batches))

    few, many = (
        first_pass(stream(count), rows_per_batch=KEPT_ROWS // count)["tensor"].sample
        for count in (4, 64)
    )
    assert len(few) == len(many) == KEPT_ROWS


def test_refuses_no_samples():
    with pytest.raises(InputRefused, match="no samples"):
        calibrated(cnn(), layers(cnn()), list, batches=0, method="max")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_refuses_nan_and_inf_by_the_tensor_name(value):
    model = cnn()
    bias = model.graph.initializer[1]
    bias.CopyFrom(numpy_helper.from_array(np.full(8, value, dtype=np.float32), bias.name))
    with pytest.raises(SourceFault, match=r"tensor t\d becomes NaN or Inf"):
        ranges(model, images(8, seed=1))
