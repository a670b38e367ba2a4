"""Where a histogram of absolute values is cut: a percentile, or least Kullback-Leibler divergence."""

from __future__ import annotations

import numpy as np

from engine_build.samples.feed import Array

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
