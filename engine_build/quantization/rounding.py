"""Rounds a weight to INT8 so that later rows make up for what earlier ones lost (GPTQ).

Rounding each value to the nearest count costs a product |X (W' - W)|^2, in which the inputs X are
correlated. Here rows of W, one for each input channel, are rounded one after the other, those of
the strongest inputs first; what a row loses is spread over the rows to come, by the inverse of
X^T X. Frantar et al., "GPTQ", 2022, algorithm 1, with its fixed steps by output channel.

All of it is float64, so that other kernels of a matrix product turn no rounding.
"""

from __future__ import annotations

import numpy as np

from engine_build.datasets.dataset import Array
from engine_build.quantization.smoothing import LARGEST, Smoothing

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
