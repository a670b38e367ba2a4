"""Bucket edges for texts of given lengths: every text is padded to the smallest edge that holds it.

What padding costs: each way of batching pads the texts to some lengths, whatever they are
themselves.

How long a row of some length takes, from what a benchmark measured at its shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.datasets.dataset import Array
from onboarding.manifest import BenchmarkRecord

SAME = -1
"""Instead of where a last bucket begins: one bucket more did not help."""


def best_edges(lengths: Array, count: int, *, multiple: int = 8) -> tuple[int, ...]:
    """Return at most `count` edges, multiples of `multiple`, with the fewest padded tokens.

    Dynamic programming over the last text of each bucket: an edge between two lengths that occur
    saves no padding.
    """
    edges, texts = np.unique(_round_up(lengths, multiple), return_counts=True)
    below = np.concatenate([[0], np.cumsum(texts)])
    cost: Array = edges * below[1:]
    last: Array = np.zeros((1, len(edges)), dtype=np.int64)
    for _ in range(1, min(count, len(edges))):
        cost, split = _one_more(cost, edges, below)
        last = np.vstack([last, split])
    return _edges_of(edges, last)


def equal_edges(longest: int, count: int, *, multiple: int = 8) -> tuple[int, ...]:
    """Edges of equal width up to the longest text, rounded up likewise."""
    exact = np.array([longest * part / count for part in range(1, count + 1)])
    return tuple(int(edge) for edge in np.unique(_round_up(np.ceil(exact), multiple)))


def padded(lengths: Array, edges: tuple[int, ...]) -> Array:
    """The length that each text is padded to; all must fit."""
    places = np.searchsorted(edges, lengths)
    found: Array = np.asarray(edges)[places]
    return found


def _round_up(lengths: Array, multiple: int) -> Array:
    rounded: Array = (-(-np.asarray(lengths) // multiple) * multiple).astype(np.int64)
    return rounded


def _one_more(cost: Array, edges: Array, below: Array) -> tuple[Array, Array]:
    """Return the least cost of the texts up to each edge, and where the last bucket begins."""
    better: Array = cost.copy()
    split: Array = np.full(len(edges), SAME, dtype=np.int64)
    for place in range(1, len(edges)):
        options = cost[:place] + edges[place] * (below[place + 1] - below[1 : place + 1])
        begin = int(options.argmin())
        if options[begin] < better[place]:
            better[place], split[place] = options[begin], begin + 1
    return better, split


def _edges_of(edges: Array, last: Array) -> tuple[int, ...]:
    """Collect the edges backwards from the longest text."""
    place, found = len(edges), []
    for row in reversed(last):
        if place > 0 and row[place - 1] != SAME:
            found.append(int(edges[place - 1]))
            place = int(row[place - 1])
    return tuple(reversed(found))


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
    parts = [lengths] if not edges else _parts(lengths, edges)
    ways = [(*_longest(part, batch), len(part) / len(lengths)) for part in parts]
    return Way(
        name=name,
        sizes=np.concatenate([sizes for sizes, _, _ in ways]),
        shares=np.concatenate([shares * part for _, shares, part in ways]),
        edges=edges,
    )


def _parts(lengths: Array, edges: tuple[int, ...]) -> Sequence[Array]:
    to = padded(lengths, edges)
    return [lengths[to == edge] for edge in edges if (to == edge).any()]


def _longest(lengths: Array, batch: int) -> tuple[Array, Array]:
    sizes, counts = np.unique(lengths, return_counts=True)
    at_most = np.cumsum(counts) / len(lengths)
    return sizes, np.diff(at_most**batch, prepend=0.0)


@dataclass(frozen=True, kw_only=True)
class Useful:
    """One measured shape, every text that fits padded to it."""

    batch: int
    sequence: int
    share_that_fits: float
    wasted: float
    tokens_per_second: float
    useful_tokens_per_second: float


def useful_at_shapes(records: Sequence[BenchmarkRecord], lengths: Array) -> tuple[Useful, ...]:
    """Every shape with a sequence; without a text that fits, nothing is useful."""
    return tuple(
        _useful(record, record.sequence, lengths)
        for record in records
        if record.sequence is not None
    )


def row_seconds(records: Sequence[BenchmarkRecord]) -> Callable[[Array], Array] | None:
    """Return seconds of a row by its length; None when nothing was measured.

    The best measured at each length, a straight line between two, and beyond the longest in
    proportion.
    """
    best: dict[int, float] = {}
    for record in records:
        if record.sequence is not None:
            best[record.sequence] = min(
                best.get(record.sequence, np.inf), 1 / record.rows_per_second
            )
    if not best:
        return None
    known = np.array(sorted(best))
    seconds = np.array([best[int(length)] for length in known])

    def estimate(lengths: Array) -> Array:
        beyond: Array = np.maximum(lengths / known[-1], 1.0)
        found: Array = np.interp(lengths, known, seconds) * beyond
        return found

    return estimate


def _useful(record: BenchmarkRecord, sequence: int, lengths: Array) -> Useful:
    fitting = lengths[lengths <= sequence]
    useful = float(fitting.mean()) / sequence if len(fitting) else 0.0
    rate = record.rows_per_second * sequence
    return Useful(
        batch=record.batch,
        sequence=sequence,
        share_that_fits=len(fitting) / len(lengths),
        wasted=1 - useful,
        tokens_per_second=round(rate, 1),
        useful_tokens_per_second=round(rate * useful, 1),
    )
