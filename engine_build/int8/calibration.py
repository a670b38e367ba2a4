"""The ranges of activations, from calibration samples that stream by: memory does not grow with
their number.

A first pass sees each channel's maximum and keeps a few hundred rows, from which the smoothing
follows; entropy and percentile
need a second one for histograms of what is left once channels are smoothed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from engine_build.errors import InputRefused, SourceFault
from engine_build.int8.activations import Activations
from engine_build.int8.grid import TINIEST
from engine_build.int8.layers import Constants, Layer
from engine_build.int8.smoothing import Smoothing, best_smoothing
from engine_build.int8.thresholds import BINS, entropy_threshold, percentile_threshold
from engine_build.samples.feed import Array, Feed
from onboarding.values import CalibrationMethod

KEPT_ROWS = 512
"""Of each activation, drawn from all batches alike."""
Feeds = Callable[[], Iterable[Feed]]
"""The calibration batches, as often as they are asked for."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """How one activation is quantized."""

    smoothing: Smoothing | None
    threshold: float
    """The largest absolute value, once smoothed, that INT8 tells apart."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the first pass keeps of one activation."""

    maxima: Array
    """[channels], absolute."""
    sample: Array
    """[rows, channels]."""


def calibrated(
    model: onnx.ModelProto,
    layers: Sequence[Layer],
    feeds: Feeds,
    *,
    batches: int,
    method: CalibrationMethod,
) -> dict[str, Range]:
    """The range of each layer's activation, by tensor.

    Raises InputRefused for no samples, SourceFault for NaN and Inf.
    """
    if batches == 0:
        raise InputRefused(
            "the calibration dataset has no samples; INT8 ranges need some, 100 or more."
        )
    activations = Activations(model, {layer.activation: layer.channel_axis for layer in layers})
    seen = first_pass(activations.rows(feeds()), rows_per_batch=max(1, KEPT_ROWS // batches))
    smoothings = {
        name: _smoothing(name, each, layers, Constants(model)) for name, each in seen.items()
    }
    maxima = {
        name: float(_smoothed_maxima(seen[name].maxima, smoothings[name]).max()) for name in seen
    }
    thresholds = maxima
    if method != "max":
        counts = histograms(activations.rows(feeds()), smoothings, maxima)
        threshold = percentile_threshold if method == "percentile" else entropy_threshold
        thresholds = {name: threshold(counts[name], maxima[name]) for name in maxima}
    return {name: Range(smoothing=smoothings[name], threshold=thresholds[name]) for name in seen}


def first_pass(batches: Iterable[Mapping[str, Array]], *, rows_per_batch: int) -> dict[str, Seen]:
    """Maxima of all rows, and some rows of each batch. Raises SourceFault for NaN and Inf."""
    random = np.random.default_rng(0)
    maxima: dict[str, Array] = {}
    kept: dict[str, list[Array]] = {}
    for batch in batches:
        for name, rows in batch.items():
            largest = np.maximum(rows.max(axis=0), -rows.min(axis=0))
            if not np.isfinite(largest).all():
                raise SourceFault(
                    f"tensor {name} becomes NaN or Inf on the calibration samples; repair them, or the source."
                )
            maxima[name] = np.maximum(maxima[name], largest) if name in maxima else largest
            kept.setdefault(name, []).append(rows[random.permutation(len(rows))[:rows_per_batch]])
    return {name: Seen(maxima=maxima[name], sample=np.concatenate(kept[name])) for name in maxima}


def histograms(
    batches: Iterable[Mapping[str, Array]],
    smoothings: Mapping[str, Smoothing | None],
    maxima: Mapping[str, float],
) -> dict[str, Array]:
    """How often each absolute value occurs once channels are smoothed: BINS bins from 0 to the
    maximum.
    """
    counts: dict[str, Array] = {name: np.zeros(BINS, dtype=np.int64) for name in maxima}
    for batch in batches:
        for name, rows in batch.items():
            smoothing = smoothings[name]
            values = np.abs(rows if smoothing is None else rows / smoothing.scales)
            counts[name] += np.histogram(values, bins=BINS, range=(0, max(maxima[name], TINIEST)))[
                0
            ]
    return counts


def _smoothing(
    name: str, seen: Seen, layers: Sequence[Layer], constants: Constants
) -> Smoothing | None:
    """One for all layers that share the activation, so that it is divided once."""
    sharing = [layer for layer in layers if layer.activation == name]
    if not all(layer.can_be_smoothed for layer in sharing):
        return None
    return best_smoothing(
        seen.maxima, seen.sample, [layer.rows(constants.array(layer.weight)) for layer in sharing]
    )


def _smoothed_maxima(maxima: Array, smoothing: Smoothing | None) -> Array:
    smoothed: Array = maxima if smoothing is None else maxima / smoothing.scales
    return smoothed
