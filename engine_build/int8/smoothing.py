"""How much of each channel's range moves from an activation into the rows of its weights
(SmoothQuant).

s = max|X|^alpha / max|W|^(1-alpha) by channel: X / s is quantized, and W's rows are multiplied by
s. Each activation gets the
alpha whose INT8 products differ least from the float ones on a sample of its rows; none, and so no
extra multiplication in the
network, where that is hardly worse. Behind a GELU the best alpha lies near 0.9: one channel is ten
times louder than most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.int8.grid import column_scales, quantized, scale
from engine_build.samples.feed import Array

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
    step = scale(float((maxima / scales).max()))
    rounded = quantized(sample / scales, step) * step
    return sum(
        float(((rounded @ _rounded(weight, scales) - wanted) ** 2).sum())
        for weight, wanted in _pairs(weights, products)
    )


def _pairs(weights: Sequence[Array], products: Sequence[Array]) -> zip[tuple[Array, Array]]:
    return zip(weights, products, strict=True)


def _rounded(weight: Array, scales: Array) -> Array:
    scaled = weight * scales[:, None]
    steps = column_scales(scaled, 1)
    back: Array = quantized(scaled, steps) * steps
    return back
