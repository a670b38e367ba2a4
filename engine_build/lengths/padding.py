"""Bucket edges for texts of given lengths, and what padding costs in several ways of batching.

Every text of a bucket is padded to the smallest edge that holds it. How long a row of some length
takes follows from what a benchmark measured at its shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine_build.datasets.dataset import Array
from onboarding.manifest import BenchmarkRecord


def best_edges(lengths: Array, count: int, *, multiple: int = 8) -> tuple[int, ...]:
    """Return at most `count` edges, multiples of `multiple`, with the fewest padded tokens.

    Dynamic programming over the last text of each bucket: an edge between two lengths that occur
    saves no padding.
    """
    edges, texts = np.unique(_round_up(lengths, multiple), return_counts=True)
    below = np.cumsum(texts)
    # Padded tokens of the texts above one edge (row) and up to another (column).
    last_bucket = edges * (below - below[:, None])
    is_later: Array = np.tri(len(edges), k=-1, dtype=bool)
    cost, begins = edges * below, []
    for _ in range(1, min(count, len(edges))):
        options = np.where(is_later, np.inf, cost[:, None] + last_bucket)
        begins.append(options.argmin(axis=0))
        cost = options.min(axis=0)
    index = len(edges) - 1
    indices = {index}
    for begin in reversed(begins):
        index = int(begin[index])
        indices.add(index)
    return tuple(int(edges[index]) for index in sorted(indices))


def equal_edges(longest: int, count: int, *, multiple: int = 8) -> tuple[int, ...]:
    """Edges of equal width up to the longest text, rounded up likewise."""
    exact = np.array([longest * part / count for part in range(1, count + 1)])
    return tuple(int(edge) for edge in np.unique(_round_up(np.ceil(exact), multiple)))


def padded(lengths: Array, edges: tuple[int, ...]) -> Array:
    """The length that each text is padded to; all must fit."""
    sizes: Array = np.asarray(edges)[np.searchsorted(edges, lengths)]
    return sizes


def _round_up(lengths: Array, multiple: int) -> Array:
    rounded: Array = (-(-np.asarray(lengths) // multiple) * multiple).astype(np.int64)
    return rounded


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way of batching: the lengths that texts are padded to, and the share of texts for each."""

    name: str
    sizes: Array
    shares: Array
    edges: tuple[int, ...] = ()

    @property
    def mean(self) -> float:
        """Tokens of a text, padding included."""
        return float(self.sizes @ self.shares)

    def wasted(self, lengths: Array) -> float:
        """Share of the tokens that are padding."""
        return 1 - float(np.mean(lengths)) / self.mean

    def useful_tokens_per_second(
        self, lengths: Array, row_seconds: Callable[[Array], Array]
    ) -> float:
        """Real tokens a second, when a row of a length takes so long."""
        return float(np.mean(lengths)) / float(row_seconds(self.sizes) @ self.shares)


def bucketed(name: str, lengths: Array, edges: tuple[int, ...]) -> Way:
    """Every text padded to the smallest edge that holds it."""
    sizes, counts = np.unique(padded(lengths, edges), return_counts=True)
    return Way(name=name, sizes=sizes, shares=counts / len(lengths), edges=edges)


def mixed(name: str, lengths: Array, batch: int, edges: tuple[int, ...] = ()) -> Way:
    """Batches of texts as they come, padded to their longest; with edges, of texts of one bucket.

    Exact, not simulated: a text's batch is as long as the longest of `batch` draws.
    """
    to = padded(lengths, edges) if edges else np.zeros(len(lengths))
    all_sizes, all_shares = [], []
    for edge in np.unique(to):
        part = lengths[to == edge]
        sizes, counts = np.unique(part, return_counts=True)
        at_most = np.cumsum(counts) / len(part)
        all_sizes.append(sizes)
        all_shares.append(np.diff(at_most**batch, prepend=0.0) * len(part) / len(lengths))
    sizes, shares = np.concatenate(all_sizes), np.concatenate(all_shares)
    return Way(name=name, sizes=sizes, shares=shares, edges=edges)


def useful_at_shapes(records: Sequence[BenchmarkRecord], lengths: Array) -> list[dict[str, Any]]:
    """Every measured shape with a sequence; nothing is useful where no text fits."""
    shapes = []
    for record in records:
        if record.sequence is not None:
            fitting = lengths[lengths <= record.sequence]
            useful = float(fitting.mean()) / record.sequence if len(fitting) else 0.0
            rate = record.rows_per_second * record.sequence
            shapes.append(
                {
                    "batch": record.batch,
                    "sequence": record.sequence,
                    "share_that_fits": len(fitting) / len(lengths),
                    "wasted": 1 - useful,
                    "tokens_per_second": round(rate, 1),
                    "useful_tokens_per_second": round(rate * useful, 1),
                }
            )
    return shapes


def row_seconds(records: Sequence[BenchmarkRecord]) -> Callable[[Array], Array] | None:
    """Return seconds of a row by its length; None when nothing was measured.

    The best measured at each length, a straight line between two, and beyond the longest in
    proportion.
    """
    best: dict[int, float] = {}
    for record in records:
        if record.sequence is not None:
            time = 1 / record.rows_per_second
            best[record.sequence] = min(best.get(record.sequence, np.inf), time)
    if not best:
        return None
    sequences, times = zip(*sorted(best.items()), strict=True)

    def estimate(lengths: Array) -> Array:
        beyond = np.maximum(lengths / sequences[-1], 1.0)
        seconds: Array = np.interp(lengths, sequences, times) * beyond
        return seconds

    return estimate
