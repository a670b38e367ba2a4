"""Smoothing: channels of an activation are shifted and divided before they are quantized.

The division moves part of a channel's range from the activation X into the rows of its weight W
(SmoothQuant): s = max|X - z|^alpha / max|W|^(1-alpha) by channel, (X - z) / s is quantized, and W's
rows are multiplied by s. The shift z, the middle of a channel's values, makes both signs alike
(Outlier Suppression+): symmetric INT8 has no zero point, and behind a GELU it would spend half of
its levels on values that never come. What the shift takes away comes back as the constant z W.

Each activation gets the alpha and the shift whose INT8 products differ least from the float ones on
a sample of its rows; none, and so no additional node, where that is hardly worse. Behind a GELU the
best alpha lies near 0.9: one channel is ten times as large as most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine_build.datasets.dataset import Array

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
    """The scales that an activation is divided by, after the shifts were subtracted."""

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

    Each of `weights` is [channels, columns].
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
