"""Ranges of activations for symmetric INT8, from calibration samples that stream by.

A first pass takes each channel's maximum and some hundred rows, from which the smoothing follows.
Entropy and percentile need a second pass, for histograms of the smoothed values. Memory does not
grow with the number of samples.

Smoothing moves part of a channel's range from the activation X into the rows of its weight W
(SmoothQuant): s = max|X|^alpha / max|W|^(1-alpha) by channel, X / s is quantized, and W's rows are
multiplied by s. Each activation gets the alpha whose INT8 products differ least from the float ones
on a sample of its rows; none, and so no additional Mul, where that is hardly worse. Behind a GELU
the best alpha lies near 0.9: one channel is ten times as large as most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from engine_build.datasets.dataset import Array, Feed
from engine_build.errors import InputRefused, SourceFault
from engine_build.quantization.layers import Activations, Constants, Layer
from onboarding.values import CalibrationMethod

LARGEST = 127
"""Zero points are 0, and -128 is left out, so that both sides are alike."""
TINIEST = 1e-12
"""A range below it counts as empty: a scale of 0 would divide by zero."""
BINS = 2048
"""ONNX Runtime's own entropy calibration has 128 bins for 128 levels: always the maximum."""
PERCENTILE = 99.99
LEVELS = 128
ENTROPY_STRIDE = 8
ALPHAS = (0.5, 0.65, 0.8, 0.85, 0.9, 0.95)
WORTH_A_MULTIPLICATION = 0.8
"""Smoothing is used where it leaves less than this part of the error."""
FLOOR = 1e-5
KEPT_ROWS = 512
"""Rows kept of each activation, drawn from all batches alike."""
Feeds = Callable[[], Iterable[Feed]]
"""Starts a pass over the calibration batches."""


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """The scales that an activation is divided by."""

    alpha: float
    scales: Array
    """float32 [channels]."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """How one activation is quantized."""

    smoothing: Smoothing | None
    threshold: float
    """The largest absolute smoothed value that INT8 represents."""


@dataclass(frozen=True, kw_only=True)
class ActivationSample:
    """What the first pass keeps of one activation."""

    maxima: Array
    """[channels], absolute."""
    rows: Array
    """[rows, channels]."""


def calibrate(
    model: onnx.ModelProto,
    layers: Sequence[Layer],
    feeds: Feeds,
    *,
    batches: int,
    method: CalibrationMethod,
) -> dict[str, Range]:
    """Return the range of each layer's activation, by tensor.

    Raises InputRefused for no samples, SourceFault for NaN and Inf.
    """
    if batches == 0:
        raise InputRefused(
            "the calibration dataset has no samples; INT8 ranges need some, 100 or more."
        )
    activations = Activations(model, {layer.activation: layer.channel_axis for layer in layers})
    samples = activation_samples(activations.rows(feeds()), max(1, KEPT_ROWS // batches))
    constants = Constants(model)
    smoothings = {
        name: _shared_smoothing(name, sample, layers, constants) for name, sample in samples.items()
    }
    thresholds = {
        name: float(_smooth(sample.maxima, smoothings[name]).max())
        for name, sample in samples.items()
    }
    if method != "max":
        counts = _histograms(activations.rows(feeds()), smoothings, thresholds)
        threshold = percentile_threshold if method == "percentile" else entropy_threshold
        thresholds = {name: threshold(counts[name], thresholds[name]) for name in counts}
    return {
        name: Range(smoothing=smoothings[name], threshold=thresholds[name]) for name in thresholds
    }


def activation_samples(
    batches: Iterable[Mapping[str, Array]], rows_per_batch: int
) -> dict[str, ActivationSample]:
    """Return the maxima of all rows, and some rows of each batch. Raises SourceFault for NaN."""
    random = np.random.default_rng(0)
    maxima: dict[str, Array] = {}
    selected: dict[str, list[Array]] = {}
    for batch in batches:
        for name, rows in batch.items():
            largest = _largest(rows, axis=0)
            if not np.isfinite(largest).all():
                raise SourceFault(
                    f"tensor {name} becomes NaN or Inf on the calibration samples; repair them, "
                    "or the source."
                )
            maxima[name] = np.maximum(maxima[name], largest) if name in maxima else largest
            places = random.permutation(len(rows))[:rows_per_batch]
            selected.setdefault(name, []).append(rows[places])
    return {
        name: ActivationSample(maxima=maxima[name], rows=np.concatenate(selected[name]))
        for name in maxima
    }


def _histograms(
    batches: Iterable[Mapping[str, Array]],
    smoothings: Mapping[str, Smoothing | None],
    maxima: Mapping[str, float],
) -> dict[str, Array]:
    """Return counts of absolute smoothed values in BINS bins from 0 to the maximum."""
    counts: dict[str, Array] = {name: np.zeros(BINS, dtype=np.int64) for name in maxima}
    for batch in batches:
        for name, rows in batch.items():
            values = np.abs(_smooth(rows, smoothings[name]))
            limits = (0, max(maxima[name], TINIEST))
            counts[name] += np.histogram(values, bins=BINS, range=limits)[0]
    return counts


def percentile_threshold(counts: Array, maximum: float) -> float:
    """Return the value that PERCENTILE percent of all values stay below."""
    shares = np.cumsum(counts) / counts.sum()
    return maximum * float(np.searchsorted(shares, PERCENTILE / 100) + 1) / len(counts)


def entropy_threshold(counts: Array, maximum: float) -> float:
    """Return the range whose LEVELS-level version has the least Kullback-Leibler divergence."""
    stops: list[int] = [*range(LEVELS, len(counts), ENTROPY_STRIDE), len(counts)]
    best = min(stops, key=lambda stop: _divergence(counts, stop))
    return maximum * best / len(counts)


def best_smoothing(maxima: Array, sample: Array, weights: Sequence[Array]) -> Smoothing | None:
    """Return the smoothing that leaves the least error; None where none is worth its Mul.

    `maxima` [channels] are of all rows, `sample` [rows, channels] has some of them, and each of
    `weights` is [channels, columns].
    """
    products = [sample @ weight for weight in weights]
    plain = _error(sample, np.ones_like(maxima), maxima, weights, products)
    scales = [smoothing_scales(maxima, weights, alpha) for alpha in ALPHAS]
    errors = [_error(sample, option, maxima, weights, products) for option in scales]
    best = int(np.argmin(errors))
    if errors[best] >= WORTH_A_MULTIPLICATION * plain:
        return None
    return Smoothing(alpha=ALPHAS[best], scales=scales[best])


def smoothing_scales(maxima: Array, weights: Sequence[Array], alpha: float) -> Array:
    """Return SmoothQuant's scales, float32 [channels]."""
    rows = np.max([_largest(weight, axis=1) for weight in weights], axis=0)
    scales = np.maximum(maxima, FLOOR) ** alpha / np.maximum(rows, FLOOR) ** (1 - alpha)
    positive: Array = np.maximum(scales, FLOOR).astype(np.float32)
    return positive


def tensor_scale(threshold: float) -> Array:
    """Return the step of one tensor, float32 []."""
    step: Array = np.array(max(threshold, TINIEST) / LARGEST, dtype=np.float32)
    return step


def channel_scales(weight: Array, axis: int) -> Array:
    """Return one step for each index of a weight's axis, float32."""
    others = tuple(other for other in range(weight.ndim) if other != axis)
    steps: Array = (np.maximum(_largest(weight, others), TINIEST) / LARGEST).astype(np.float32)
    return steps


def round_to_int8(values: Array, steps: Array) -> Array:
    """Return values as int8 counts of steps, -127 to 127."""
    counts = values / steps
    np.rint(counts, out=counts)
    whole: Array = np.clip(counts, -LARGEST, LARGEST, out=counts).astype(np.int8)
    return whole


def along_axis(steps: Array, rank: int, axis: int) -> Array:
    """Return steps of one axis, shaped to broadcast over a tensor of some rank."""
    shaped: Array = steps.reshape([-1 if other == axis else 1 for other in range(rank)])
    return shaped


def _largest(values: Array, axis: int | tuple[int, ...]) -> Array:
    """Return the absolute maxima without a copy of all values."""
    largest: Array = np.maximum(values.max(axis=axis), -values.min(axis=axis))
    return largest


def _smooth(values: Array, smoothing: Smoothing | None) -> Array:
    smoothed: Array = values if smoothing is None else values / smoothing.scales
    return smoothed


def _shared_smoothing(
    name: str, sample: ActivationSample, layers: Sequence[Layer], constants: Constants
) -> Smoothing | None:
    """Choose one smoothing for all layers of an activation, so that it is divided once."""
    sharing = [layer for layer in layers if layer.activation == name]
    if not all(layer.can_be_smoothed for layer in sharing):
        return None
    weights = [layer.rows(constants.array(layer.weight)) for layer in sharing]
    return best_smoothing(sample.maxima, sample.rows, weights)


def _error(
    sample: Array, scales: Array, maxima: Array, weights: Sequence[Array], products: Sequence[Array]
) -> float:
    """Return the squared error of the INT8 products, all weights together."""
    step = tensor_scale(float((maxima / scales).max()))
    rounded = round_to_int8(sample / scales, step) * step
    error = 0.0
    for weight, product in zip(weights, products, strict=True):
        scaled = weight * scales[:, None]
        steps = channel_scales(scaled, 1)
        error += float(((rounded @ (round_to_int8(scaled, steps) * steps) - product) ** 2).sum())
    return error


def _divergence(counts: Array, stop: int) -> float:
    """Return the Kullback-Leibler divergence of LEVELS levels below `stop`."""
    clipped: Array = counts[:stop].astype(np.float64)
    expected = clipped.copy()
    expected[-1] += counts[stop:].sum()
    starts: Array = np.arange(LEVELS) * stop // LEVELS
    sizes: Array = np.diff(np.append(starts, stop))
    sums = np.add.reduceat(clipped, starts)
    filled = np.add.reduceat(clipped > 0, starts, dtype=np.float64)
    means = np.divide(sums, filled, out=np.zeros_like(sums), where=filled > 0)
    actual = np.where(clipped > 0, np.repeat(means, sizes), 0.0)
    if actual.sum() == 0:
        return float("inf")
    p, q = expected / expected.sum(), actual / actual.sum()
    # An empty level where there should be something costs much, yet not everything.
    q = np.where((p > 0) & (q == 0), 1e-6, q)
    selected = p > 0
    return float((p[selected] * np.log(p[selected] / q[selected])).sum())
