"""Ranges of activations for symmetric INT8, from calibration samples that stream by.

A first pass takes each channel's maximum and some thousand rows, from which the smoothing and the
rounding of weights follow. Entropy and percentile need a second pass, for histograms of the
smoothed values. Memory does not grow with the number of samples.

A weight is rounded to INT8 so that later rows make up for what earlier ones lost (GPTQ). Rounding
each value to the nearest count costs a product |X (W' - W)|^2, in which the inputs X are
correlated. Here rows of W, one for each input channel, are rounded one after the other, those of
the strongest inputs first; what a row loses is spread over the rows to come, by the inverse of
X^T X. Frantar et al., "GPTQ", 2022, algorithm 1, with its fixed steps by output channel. All of it
is float64, so that other kernels of a matrix product turn no rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from engine_build.datasets.dataset import Array, Feed
from engine_build.errors import SourceFault
from engine_build.quantization.layers import Activations, Constants, Layer, int8_tensors
from onboarding.values import CalibrationMethod

BINS = 2048
"""ONNX Runtime's own entropy calibration has 128 bins for 128 levels: always the maximum."""
PERCENTILE = 99.99
LEVELS = 128
ENTROPY_STRIDE = 8
KEPT_ROWS = 2048
"""Rows kept of each activation, drawn from all batches alike."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """How one activation is quantized."""

    smoothing: Smoothing | None
    threshold: float
    """The largest absolute smoothed value that INT8 represents."""
    weights: Mapping[str, Array] = field(default_factory=dict)
    """By layer output, int8 counts [channels, columns]; the nearest ones where it has none."""


def calibrate(
    model: onnx.ModelProto,
    layers: Sequence[Layer],
    feeds: Callable[[], Iterable[Feed]],
    *,
    batches: int,
    method: CalibrationMethod,
    smooths: bool = True,
) -> dict[str, Range]:
    """Return the range of each layer's activation, of residuals and pools, by tensor.

    Where `smooths` is False no activation is smoothed. Raises SourceFault for NaN and Inf.
    """
    axes = {layer.activation: layer.channel_axis for layer in layers}
    axes |= {name: 1 for name in int8_tensors(model, layers) if name not in axes}
    activations = Activations(model, axes)
    samples = activation_samples(activations.rows(feeds()), max(1, KEPT_ROWS // batches))
    constants = Constants(model)
    smoothings = {
        name: _shared_smoothing(name, sample, layers, constants) if smooths else None
        for name, sample in samples.items()
    }
    thresholds = {
        name: sample.smoothed_maximum(smoothings[name]) for name, sample in samples.items()
    }
    if method != "max":
        counts = _histograms(activations.rows(feeds()), smoothings, thresholds)
        threshold = percentile_threshold if method == "percentile" else entropy_threshold
        thresholds = {name: threshold(counts[name], thresholds[name]) for name in counts}
    return {
        name: Range(
            smoothing=smoothings[name],
            threshold=thresholds[name],
            weights=_rounded_weights(
                name, sample, smoothings[name], thresholds[name], layers, constants
            ),
        )
        for name, sample in samples.items()
    }


def activation_samples(
    batches: Iterable[Mapping[str, Array]], rows_per_batch: int
) -> dict[str, ActivationSample]:
    """Return the ends of all rows, and some rows of each batch. Raises SourceFault for NaN."""
    random = np.random.default_rng(0)
    ends: dict[str, tuple[Array, Array]] = {}
    selected: dict[str, list[Array]] = {}
    for batch in batches:
        for name, rows in batch.items():
            least, largest = rows.min(axis=0), rows.max(axis=0)
            if not (np.isfinite(least).all() and np.isfinite(largest).all()):
                raise SourceFault(
                    f"tensor {name} becomes NaN or Inf on the calibration samples; repair them, "
                    "or the source."
                )
            before = ends.get(name, (least, largest))
            ends[name] = np.minimum(before[0], least), np.maximum(before[1], largest)
            places = random.permutation(len(rows))[:rows_per_batch]
            selected.setdefault(name, []).append(rows[places])
    return {
        name: ActivationSample(least=least, largest=largest, rows=np.concatenate(selected[name]))
        for name, (least, largest) in ends.items()
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
            smoothing = smoothings[name]
            values = np.abs(rows if smoothing is None else smoothing.apply(rows))
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


def _shared_smoothing(
    name: str, sample: ActivationSample, layers: Sequence[Layer], constants: Constants
) -> Smoothing | None:
    """Choose one smoothing for all layers of an activation, so that it is divided once."""
    sharing = [layer for layer in layers if layer.activation == name]
    if not sharing or not all(layer.can_be_smoothed for layer in sharing):
        return None
    weights = [layer.rows(constants.array(layer.weight)) for layer in sharing]
    return best_smoothing(sample, weights)


def _rounded_weights(
    name: str,
    sample: ActivationSample,
    smoothing: Smoothing | None,
    threshold: float,
    layers: Sequence[Layer],
    constants: Constants,
) -> dict[str, Array]:
    """Return the int8 counts of all layers of an activation; none of a Conv, whose input slides."""
    sharing = [layer for layer in layers if layer.activation == name and layer.can_be_smoothed]
    if not sharing or sample.rows.shape[1] > MOST_CHANNELS:
        return {}
    weights = [layer.rows(constants.array(layer.weight)) for layer in sharing]
    if smoothing is not None:
        weights = [weight * smoothing.scales[:, None] for weight in weights]
    columns = np.cumsum([weight.shape[1] for weight in weights])[:-1]
    steps = np.concatenate([channel_scales(weight, 1) for weight in weights])
    moments = second_moments(sample.rows, smoothing, float(tensor_scale(threshold)))
    counts = compensated_counts(np.concatenate(weights, axis=1), steps, moments)
    parts = np.split(counts, columns, axis=1)
    return {layer.output: part for layer, part in zip(sharing, parts, strict=True)}


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


DAMPING = 0.1
"""Part of the mean second moment that is added to each channel's: inputs of other texts differ."""
MOST_MOVED = 1.0
"""Counts between a value and its rounding. Without a bound, channels that are silent in the samples
would take all that others lose, and a text that makes one of them loud gets another answer."""
BLOCK = 128
"""Rows that are rounded before the rest of the weight hears of them."""
MOST_CHANNELS = 4096
"""Of more input channels the moments, and time, grow too large: nearest counts serve there."""


def second_moments(rows: Array, smoothing: Smoothing | None, step: float) -> Array:
    """Return the mean of x^T x of what a weight is multiplied by, float64 [channels, channels].

    `rows` are float activations [rows, channels]. Their rounding to multiples of `step` is noise
    without correlation, a twelfth of a squared step in each channel. The shift of a smoothing is
    added again behind the product, so that it takes nothing from the input.
    """
    inputs: Array = rows.astype(np.float64)
    if smoothing is not None:
        inputs /= smoothing.scales
    moments: Array = inputs.T @ inputs / len(inputs)
    moments[np.diag_indices_from(moments)] += step**2 / 12
    return moments


def compensated_counts(weight: Array, steps: Array, moments: Array) -> Array:
    """Return int8 counts of steps, -127 to 127, of a weight [channels, columns].

    `steps` are [columns]; `moments` are of the weight's input.
    """
    strength = np.diag(moments)
    order = np.argsort(-strength, kind="stable")
    damped = moments[np.ix_(order, order)]
    damped[np.diag_indices_from(damped)] += max(DAMPING * float(strength.mean()), 1e-30)
    spread = _inverse_factor(damped)
    values = weight[order].astype(np.float64) / steps
    least = np.maximum(np.ceil(values - MOST_MOVED), -LARGEST)
    largest = np.minimum(np.floor(values + MOST_MOVED), LARGEST)
    counts: Array = np.empty(values.shape, dtype=np.int8)
    for begin in range(0, len(values), BLOCK):
        end = min(begin + BLOCK, len(values))
        lost = np.empty((end - begin, values.shape[1]))
        for row in range(begin, end):
            whole = np.clip(np.rint(values[row]), least[row], largest[row])
            counts[order[row]] = whole
            lost[row - begin] = (values[row] - whole) / spread[row, row]
            values[row + 1 : end] -= np.outer(spread[row, row + 1 : end], lost[row - begin])
        values[end:] -= spread[begin:end, end:].T @ lost
    return counts


def _inverse_factor(matrix: Array) -> Array:
    """Return U, upper triangular, with U^T U the inverse of a positive definite matrix."""
    reverse = np.linalg.cholesky(matrix[::-1, ::-1])[::-1, ::-1]
    factor: Array = np.triu(np.linalg.inv(reverse))
    return factor


LARGEST = 127
"""Zero points are 0, and -128 is left out, so that both sides are alike."""
TINIEST = 1e-12
"""A range below it counts as empty: a scale of 0 would divide by zero."""
ALPHAS = (0.5, 0.65, 0.8, 0.85, 0.9, 0.95)
WORTH_A_MULTIPLICATION = 0.8
"""Smoothing is used where it leaves less than this part of the error."""
WORTH_A_SHIFT = 0.9
"""A shift is used where it leaves less than this part of the error without one."""
FLOOR = 1e-5
COMPARED_ROWS = 512
"""Rows of a sample that errors are measured on."""


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """The scales that an activation is divided by, after the shifts were subtracted.

    The division moves part of a channel's range from the activation X into the rows of its weight W
    (SmoothQuant): s = max|X - z|^alpha / max|W|^(1-alpha) by channel, (X - z) / s is quantized, and
    W's rows are multiplied by s. The shift z, the middle of a channel's values, makes both signs
    alike (Outlier Suppression+): symmetric INT8 has no zero point, and behind a GELU it would spend
    half of its levels on values that never come. What the shift takes away comes back as the
    constant z W.
    """

    alpha: float
    scales: Array
    """float32 [channels]."""
    shifts: Array | None = None
    """float32 [channels]; None where nothing is subtracted."""

    def apply(self, values: Array) -> Array:
        """Return [..., channels] as they are quantized."""
        moved: Array = values if self.shifts is None else values - self.shifts
        scaled: Array = moved / self.scales
        return scaled

    def constant(self, rows: Array) -> Array | None:
        """Return what the shift takes from the products with a weight; None: nothing.

        `rows` are the weight's as INT8 holds them, multiplied by the scales: [channels, columns].
        So what their rounding costs is a constant too, and is no error where values are near 0.
        The result is float32 [columns].
        """
        if self.shifts is None:
            return None
        counts = self.shifts.astype(np.float64) / self.scales
        constant: Array = (counts @ rows).astype(np.float32)
        return constant


@dataclass(frozen=True, kw_only=True)
class ActivationSample:
    """What the first pass of a calibration keeps of one activation."""

    least: Array
    """[channels], of all rows."""
    largest: Array
    """[channels], of all rows."""
    rows: Array
    """[rows, channels], some of them."""

    def smoothed_maximum(self, smoothing: Smoothing | None) -> float:
        """Return the largest absolute value as it is quantized.

        A shift lies within half a step of the middle of its channel, for which there is room.
        """
        if smoothing is None or smoothing.shifts is None:
            ends = np.stack([self.least, self.largest])
            return float(np.abs(ends if smoothing is None else smoothing.apply(ends)).max())
        half = (self.largest - self.least) / 2
        return float((half / smoothing.scales).max()) * LARGEST / (LARGEST - 0.5)


def best_smoothing(sample: ActivationSample, weights: Sequence[Array]) -> Smoothing | None:
    """Return the smoothing that leaves the least error; None where none is worth its nodes.

    The alpha and the shift are those whose INT8 products differ least from the float ones on a
    sample of the activation's rows. Behind a GELU the best alpha lies near 0.9: one channel is ten
    times as large as most. Each of `weights` is [channels, columns].
    """
    sample = replace(sample, rows=sample.rows[:: -(-len(sample.rows) // COMPARED_ROWS)])
    products = [sample.rows @ weight for weight in weights]
    plain = _error(sample, None, weights, products)
    divided = _best(sample, weights, products, None)
    middles: Array = ((sample.least + sample.largest) / 2).astype(np.float32)
    shifted = _best(sample, weights, products, middles)
    error, smoothing = shifted if shifted[0] < WORTH_A_SHIFT * divided[0] else divided
    return None if error >= WORTH_A_MULTIPLICATION * plain else smoothing


def smoothing_scales(maxima: Array, weights: Sequence[Array], alpha: float) -> Array:
    """Return SmoothQuant's scales of channels with these absolute maxima, float32 [channels]."""
    rows = np.max([absolute_maxima(weight, axis=1) for weight in weights], axis=0)
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
    maxima = np.maximum(absolute_maxima(weight, others), TINIEST)
    steps: Array = (maxima / LARGEST).astype(np.float32)
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


def absolute_maxima(values: Array, axis: int | tuple[int, ...]) -> Array:
    """Return the absolute maxima without a copy of all values."""
    maxima: Array = np.maximum(values.max(axis=axis), -values.min(axis=axis))
    return maxima


def _best(
    sample: ActivationSample,
    weights: Sequence[Array],
    products: Sequence[Array],
    shifts: Array | None,
) -> tuple[float, Smoothing]:
    """Return the least error of all alphas, and its smoothing."""
    ends = np.stack([sample.least, sample.largest])
    maxima = absolute_maxima(ends if shifts is None else ends - shifts, 0)
    options = []
    for alpha in ALPHAS:
        scales = smoothing_scales(maxima, weights, alpha)
        option = Smoothing(alpha=alpha, scales=scales, shifts=shifts)
        if shifts is not None:
            # Shifts are whole INT8 steps, so that 0, the commonest value, stays exact.
            steps = scales * tensor_scale(sample.smoothed_maximum(option))
            option = replace(option, shifts=(np.rint(shifts / steps) * steps).astype(np.float32))
        options.append(option)
    errors = [_error(sample, option, weights, products) for option in options]
    best = int(np.argmin(errors))
    return errors[best], options[best]


def _error(
    sample: ActivationSample,
    smoothing: Smoothing | None,
    weights: Sequence[Array],
    products: Sequence[Array],
) -> float:
    """Return the squared error of the INT8 products, all weights together."""
    step = tensor_scale(sample.smoothed_maximum(smoothing))
    values = sample.rows if smoothing is None else smoothing.apply(sample.rows)
    rounded = round_to_int8(values, step) * step
    error = 0.0
    for weight, product in zip(weights, products, strict=True):
        scaled = weight if smoothing is None else weight * smoothing.scales[:, None]
        steps = channel_scales(scaled, 1)
        whole = round_to_int8(scaled, steps) * steps
        result = rounded @ whole
        constant = None if smoothing is None else smoothing.constant(whole)
        difference = result - product if constant is None else result + constant - product
        error += float((difference**2).sum())
    return error
