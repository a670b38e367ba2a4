"""The INT8 grid: symmetric, zero points 0, 127 steps either side."""

from __future__ import annotations

import numpy as np

from engine_build.samples.feed import Array

LARGEST = 127
TINIEST = 1e-12
"""Below it a range counts as empty: a scale of 0 would divide by nothing."""


def scale(threshold: float) -> Array:
    """Of one tensor, float32 []."""
    step: Array = np.array(max(threshold, TINIEST) / LARGEST, dtype=np.float32)
    return step


def column_scales(weight: Array, axis: int) -> Array:
    """Of a weight, one for each place of an axis, float32."""
    others = tuple(each for each in range(weight.ndim) if each != axis)
    largest = np.maximum(weight.max(axis=others), -weight.min(axis=others))
    steps: Array = (np.maximum(largest, TINIEST) / LARGEST).astype(np.float32)
    return steps


def quantized(values: Array, steps: Array) -> Array:
    """int8 numbers of steps; weights leave -128 out, so that both sides are alike."""
    number = values / steps
    np.rint(number, out=number)
    whole: Array = np.clip(number, -LARGEST, LARGEST, out=number).astype(np.int8)
    return whole


def along(steps: Array, rank: int, axis: int) -> Array:
    """Steps of one axis, shaped to meet a tensor of some rank."""
    shaped: Array = steps.reshape([-1 if each == axis else 1 for each in range(rank)])
    return shaped
