"""The INT8 grid: symmetric, zero points 0, 127 steps either side.

Where a histogram of absolute values is cut: a percentile, or least Kullback-Leibler divergence.

How much of each channel's range moves from an activation into the rows of its weights
(SmoothQuant).

s = max|X|^alpha / max|W|^(1-alpha) by channel: X / s is quantized, and W's rows are multiplied by
s. Each activation gets the
alpha whose INT8 products differ least from the float ones on a sample of its rows; none, and so no
extra multiplication in the
network, where that is hardly worse. Behind a GELU the best alpha lies near 0.9: one channel is ten
times louder than most.

The ranges of activations, from calibration samples that stream by: memory does not grow with
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
from engine_build.quantization.layers import Activations, Constants, Layer
from engine_build.samples.feed import Array, Feed
from onboarding.values import CalibrationMethod

LARGEST = 127
TINIEST = 1e-12
"""Below it a range counts as empty: a scale of 0 would divide by nothing."""


def grid_scale(threshold: float) -> Array:
    """Of one tensor, float32 []."""
    step: Array = np.array(max(threshold, TINIEST) / LARGEST, dtype=np.float32)
    return step


def grid_column_scales(weight: Array, axis: int) -> Array:
    """Of a weight, one for each place of an axis, float32."""
    others = tuple(each for each in range(weight.ndim) if each != axis)
    largest = np.maximum(weight.max(axis=others), -weight.min(axis=others))
    steps: Array = (np.maximum(largest, TINIEST) / LARGEST).astype(np.float32)
    return steps


def grid_quantized(values: Array, steps: Array) -> Array:
    """int8 numbers of steps; weights leave -128 out, so that both sides are alike."""
    number = values / steps
    np.rint(number, out=number)
    whole: Array = np.clip(number, -LARGEST, LARGEST, out=number).astype(np.int8)
    return whole


def grid_along(steps: Array, rank: int, axis: int) -> Array:
    """Steps of one axis, shaped to meet a tensor of some rank."""
    shaped: Array = steps.reshape([-1 if each == axis else 1 for each in range(rank)])
    return shaped


BINS = 2048
"""ONNX Runtime's own entropy calibration has 128 bins for 128 levels, which makes it the maximum
under another name.
"""
PERCENTILE = 99.99
LEVELS = 128
ENTROPY_STRIDE = 8


def percentile_threshold(counts: Array, maximum: float) -> float:
    """The value that PERCENTILE percent of all values stay below."""
    shares = np.cumsum(counts) / counts.sum()
    return maximum * float(np.searchsorted(shares, PERCENTILE / 100) + 1) / len(counts)


def entropy_threshold(counts: Array, maximum: float) -> float:
    """The range whose LEVELS-level version tells most of the distribution: least Kullback-Leibler
    divergence.
    """
    stops: list[int] = [*range(LEVELS, len(counts), ENTROPY_STRIDE), len(counts)]
    best = min(stops, key=lambda stop: _divergence(counts, stop))
    return maximum * best / len(counts)


def _divergence(counts: Array, stop: int) -> float:
    clipped: Array = counts[:stop].astype(np.float64)
    wanted = clipped.copy()
    wanted[-1] += counts[stop:].sum()
    starts: Array = np.arange(LEVELS) * stop // LEVELS
    sizes: Array = np.diff(np.append(starts, stop))
    sums, filled = (
        np.add.reduceat(clipped, starts),
        np.add.reduceat(clipped > 0, starts, dtype=np.float64),
    )
    level: Array = np.repeat(
        np.divide(sums, filled, out=np.zeros_like(sums), where=filled > 0), sizes
    )
    return _kullback_leibler(wanted, np.where(clipped > 0, level, 0.0))


def _kullback_leibler(wanted: Array, found: Array) -> float:
    if found.sum() == 0:
        return float("inf")
    p, q = wanted / wanted.sum(), found / found.sum()
    # An empty level where there should be something costs much, yet not everything.
    q = np.where((p > 0) & (q == 0), 1e-6, q)
    kept = p > 0
    return float((p[kept] * np.log(p[kept] / q[kept])).sum())


ALPHAS = (0.5, 0.65, 0.8, 0.85, 0.9, 0.95)
WORTH_A_MULTIPLICATION = 0.8
"""Smoothing is used where it leaves less than this part of the error."""
FLOOR = 1e-5


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """What one activation is divided by."""

    alpha: float
    scales: Array
    """float32 [channels]."""


def best_smoothing(maxima: Array, sample: Array, weights: Sequence[Array]) -> Smoothing | None:
    """`maxima` [channels] of all calibration rows, `sample` [rows, channels] some of them,
    `weights` [channels, columns].
    """
    products = [sample @ weight for weight in weights]
    bare = _error(sample, np.ones_like(maxima), maxima, weights, products)
    candidates = [
        Smoothing(alpha=alpha, scales=smoothing_scales(maxima, weights, alpha)) for alpha in ALPHAS
    ]
    errors = [_error(sample, each.scales, maxima, weights, products) for each in candidates]
    best = int(np.argmin(errors))
    return candidates[best] if errors[best] < WORTH_A_MULTIPLICATION * bare else None


def smoothing_scales(maxima: Array, weights: Sequence[Array], alpha: float) -> Array:
    """float32 [channels]."""
    rows = np.max(
        [np.maximum(weight.max(axis=1), -weight.min(axis=1)) for weight in weights], axis=0
    )
    scales = np.maximum(maxima, FLOOR) ** alpha / np.maximum(rows, FLOOR) ** (1 - alpha)
    positive: Array = np.maximum(scales, FLOOR).astype(np.float32)
    return positive


def _error(
    sample: Array, scales: Array, maxima: Array, weights: Sequence[Array], products: Sequence[Array]
) -> float:
    """Squared error of the INT8 products, all weights together."""
    step = grid_scale(float((maxima / scales).max()))
    rounded = grid_quantized(sample / scales, step) * step
    return sum(
        float(((rounded @ _rounded(weight, scales) - wanted) ** 2).sum())
        for weight, wanted in _pairs(weights, products)
    )


def _pairs(weights: Sequence[Array], products: Sequence[Array]) -> zip[tuple[Array, Array]]:
    return zip(weights, products, strict=True)


def _rounded(weight: Array, scales: Array) -> Array:
    scaled = weight * scales[:, None]
    steps = grid_column_scales(scaled, 1)
    back: Array = grid_quantized(scaled, steps) * steps
    return back


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
