"""Bucket edges for texts of given lengths: every text is padded to the smallest edge that holds it."""

from __future__ import annotations

import numpy as np

from engine_build.samples.feed import Array

SAME = -1
"""Instead of where a last bucket begins: one bucket more did not help."""


def best_edges(lengths: Array, count: int, *, multiple: int = 8) -> tuple[int, ...]:
    """At most `count` edges, multiples of `multiple`, with the fewest padded tokens that so many
    edges allow.

    Dynamic programming over the last text of each bucket: an edge between two lengths that occur
    pads for nobody.
    """
    edges, texts = np.unique(_rounded(lengths, multiple), return_counts=True)
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
    return tuple(int(edge) for edge in np.unique(_rounded(np.ceil(exact), multiple)))


def padded(lengths: Array, edges: tuple[int, ...]) -> Array:
    """The length that each text is padded to; all must fit."""
    places = np.searchsorted(edges, lengths)
    found: Array = np.asarray(edges)[places]
    return found


def _rounded(lengths: Array, multiple: int) -> Array:
    rounded: Array = (-(-np.asarray(lengths) // multiple) * multiple).astype(np.int64)
    return rounded


def _one_more(cost: Array, edges: Array, below: Array) -> tuple[Array, Array]:
    """The least cost of the texts up to each edge with one bucket more, and where its last bucket
    begins.
    """
    better: Array = cost.copy()
    split: Array = np.full(len(edges), SAME, dtype=np.int64)
    for place in range(1, len(edges)):
        options = cost[:place] + edges[place] * (below[place + 1] - below[1 : place + 1])
        begin = int(options.argmin())
        if options[begin] < better[place]:
            better[place], split[place] = options[begin], begin + 1
    return better, split


def _edges_of(edges: Array, last: Array) -> tuple[int, ...]:
    """Walks back from the longest text."""
    place, found = len(edges), []
    for row in reversed(last):
        if place > 0 and row[place - 1] != SAME:
            found.append(int(edges[place - 1]))
            place = int(row[place - 1])
    return tuple(reversed(found))
