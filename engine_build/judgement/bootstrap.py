"""Intervals by resampling: seeded, so that the same numbers give the same interval; vectorised, in
memory that stays flat.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine_build.samples.feed import Array

RESAMPLES = 2000
CONFIDENCE = 0.95
DRAWS_AT_ONCE = 1 << 21
"""Numbers drawn at once: 16 MiB of indices."""
Interval = tuple[float, float]


def mean_interval(values: Array, *, draws_at_once: int = DRAWS_AT_ONCE) -> Interval:
    """Of the mean.

    Values that are all the same give an interval without width: how few they are is judged
    elsewhere.
    """
    return _interval(len(values), lambda drawn: values[drawn].mean(axis=1), draws_at_once)


def ratio_interval(above: Array, below: Array) -> Interval:
    """Of the ratio of two means over the same samples, drawn in pairs; draws whose lower mean is 0
    are left out.
    """

    def ratio(drawn: Array) -> Array:
        means: Array = below[drawn].mean(axis=1)
        kept = means > 0
        found: Array = above[drawn].mean(axis=1)[kept] / means[kept]
        return found

    return _interval(len(above), ratio)


def median_interval(values: Array) -> Interval:
    """Of the median."""
    return _interval(len(values), lambda drawn: np.median(values[drawn], axis=1))


def _interval(
    count: int, statistic: Callable[[Array], Array], draws_at_once: int = DRAWS_AT_ONCE
) -> Interval:
    random = np.random.default_rng(0)
    at_once = max(1, min(RESAMPLES, draws_at_once // count))
    found = [
        statistic(random.integers(0, count, size=(min(at_once, RESAMPLES - begin), count)))
        for begin in range(0, RESAMPLES, at_once)
    ]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(found), [tail, 1 - tail])
    return float(low), float(high)
