"""What calibration samples show of a network's activations, batch by batch, so that memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from engine_build.errors import SourceFault
from engine_build.feed import ATTENTION_MASK, Array, Feed
from engine_build.ort import OrtNetwork

BINS = 2048
"""ONNX Runtime's own entropy calibration has 128 bins for 128 levels, which makes it the maximum under another name."""
PERCENTILE = 99.99
LEVELS = 128
ENTROPY_STRIDE = 8


class Activations:
    """Some tensors of a network, seen while samples pass through it; padding is left out."""

    def __init__(self, model: onnx.ModelProto, tensors: Sequence[str]) -> None:
        self._tensors = tuple(tensors)
        spied = onnx.ModelProto()
        spied.CopyFrom(model)
        present = {output.name for output in spied.graph.output}
        spied.graph.output.extend(onnx.ValueInfoProto(name=name) for name in self._tensors if name not in present)
        self._network = OrtNetwork(spied.SerializeToString())

    def rows(self, feeds: Sequence[Feed]) -> Iterator[dict[str, Array]]:
        """For each feed, each tensor as [rows, channels]."""
        for feed in feeds:
            kept = None if ATTENTION_MASK not in feed else feed[ATTENTION_MASK] == 1
            yield {name: _rows(value, kept) for name, value in self._network.values(self._tensors, feed).items()}

    def shapes(self, feed: Feed) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor for one feed."""
        return {name: value.shape for name, value in self._network.values(self._tensors, feed).items()}


def channel_maxima(activations: Activations, feeds: Sequence[Feed]) -> dict[str, Array]:
    """The largest absolute value of each channel of each tensor. Raises SourceFault for NaN and Inf."""
    maxima: dict[str, Array] = {}
    for batch in activations.rows(feeds):
        for name, rows in batch.items():
            found = np.abs(rows).max(axis=0)
            if not np.isfinite(found).all():
                raise SourceFault(f"tensor {name} becomes NaN or Inf on the calibration samples; the source is broken.")
            maxima[name] = np.maximum(maxima[name], found) if name in maxima else found
    return maxima


def histograms(
    activations: Activations, feeds: Sequence[Feed], scales: Mapping[str, Array], maxima: Mapping[str, float]
) -> dict[str, Array]:
    """How often each absolute value occurs once channels are divided by `scales`: BINS bins from 0 to the maximum."""
    counts: dict[str, Array] = {name: np.zeros(BINS, dtype=np.int64) for name in maxima}
    for batch in activations.rows(feeds):
        for name, rows in batch.items():
            counts[name] += np.histogram(np.abs(rows / scales[name]), bins=BINS, range=(0, max(maxima[name], 1e-12)))[0]
    return counts


def percentile_threshold(counts: Array, maximum: float) -> float:
    """The value that PERCENTILE percent of all values stay below."""
    shares = np.cumsum(counts) / counts.sum()
    return maximum * float(np.searchsorted(shares, PERCENTILE / 100) + 1) / len(counts)


def entropy_threshold(counts: Array, maximum: float) -> float:
    """The range whose LEVELS-level version tells most of the distribution: least Kullback-Leibler divergence."""
    stops: list[int] = [*range(LEVELS, len(counts), ENTROPY_STRIDE), len(counts)]
    best = min(stops, key=lambda stop: _divergence(counts, stop))
    return maximum * best / len(counts)


def _divergence(counts: Array, stop: int) -> float:
    clipped: Array = counts[:stop].astype(np.float64)
    wanted = clipped.copy()
    wanted[-1] += counts[stop:].sum()
    starts: Array = np.arange(LEVELS) * stop // LEVELS
    sizes: Array = np.diff(np.append(starts, stop))
    sums, filled = np.add.reduceat(clipped, starts), np.add.reduceat(clipped > 0, starts, dtype=np.float64)
    level: Array = np.repeat(np.divide(sums, filled, out=np.zeros_like(sums), where=filled > 0), sizes)
    return _kullback_leibler(wanted, np.where(clipped > 0, level, 0.0))


def _kullback_leibler(wanted: Array, found: Array) -> float:
    if found.sum() == 0:
        return float("inf")
    p, q = wanted / wanted.sum(), found / found.sum()
    # An empty level where there should be something costs much, yet not everything.
    q = np.where((p > 0) & (q == 0), 1e-6, q)
    kept = p > 0
    return float((p[kept] * np.log(p[kept] / q[kept])).sum())


def _rows(value: Array, kept: Any) -> Array:
    if kept is not None and value.shape[: kept.ndim] == kept.shape:
        value = value[kept]
    rows: Array = value.reshape(-1, value.shape[-1]) if value.ndim > 1 else value[:, None]
    return rows
