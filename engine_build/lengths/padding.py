"""What padding costs: each way of batching pads the texts to some lengths, whatever they are
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.lengths.buckets import padded
from engine_build.samples.feed import Array


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
