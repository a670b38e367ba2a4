"""How alike two answers to one sample are: a score for each sample, 1 being the source model's own
answer.

cosine          of the two rows
agreement       1 where the largest value stands at the same place, else 0
accuracy        whether the class is the label's, for both models: what is kept of the source
model's accuracy
relative_error  1 - |row - reference| / |reference|, in L2, at least -1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from engine_build.samples.feed import Array
from onboarding.values import Metric

BLOCK = 4096
"""Rows in double precision, or of a similarity matrix, at once: memory stays flat however many
samples there are.
"""
WORST_IS_JUDGED: frozenset[Metric] = frozenset({"cosine", "relative_error"})
"""The others are 0 or 1 for one sample, so that their worst says nothing."""


def cosines(found: Array, reference: Array) -> Array:
    """[samples]; 1 where both rows are zero, 0 where one is."""
    return _by_block(_cosine, found, reference)


def agreements(found: Array, reference: Array) -> Array:
    """[samples], 0 or 1."""
    same: Array = (found.argmax(axis=1) == reference.argmax(axis=1)).astype(np.float64)
    return same


def relative_scores(found: Array, reference: Array) -> Array:
    """[samples], -1 to 1."""
    return _by_block(_relative, found, reference)


def hits(rows: Array, labels: Array) -> Array:
    """[samples]: 1 where the class with the largest value is the label's, else 0."""
    right: Array = (rows.argmax(axis=1) == labels).astype(np.float64)
    return right


def nearest(rows: Array, block: int = BLOCK) -> Array:
    """The most similar other row of each row, by cosine; [samples, samples] never stands in memory
    whole.
    """
    unit = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(
        np.float32
    )
    best: Array = np.empty(len(unit), dtype=np.int64)
    for part in _blocks(len(unit), block):
        similarity = unit[part] @ unit.T
        similarity[
            np.arange(len(similarity)), np.arange(part.start, part.start + len(similarity))
        ] = -np.inf
        best[part] = similarity.argmax(axis=1)
    return best


def _by_block(score: Callable[[Array, Array], Array], found: Array, reference: Array) -> Array:
    parts = [
        score(found[part].astype(np.float64), reference[part].astype(np.float64))
        for part in _blocks(len(found), BLOCK)
    ]
    scores: Array = np.concatenate(parts)
    return scores


def _blocks(count: int, block: int) -> Iterator[slice]:
    return (slice(begin, min(begin + block, count)) for begin in range(0, count, block))


def _cosine(found: Array, reference: Array) -> Array:
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(reference, axis=1)
    products = np.einsum("ij,ij->i", found, reference)
    both_zero = ~found.any(axis=1) & ~reference.any(axis=1)
    cosine: Array = np.where(
        both_zero, 1.0, np.clip(products / np.where(lengths > 0, lengths, 1.0), -1.0, 1.0)
    )
    return cosine


def _relative(found: Array, reference: Array) -> Array:
    lengths = np.linalg.norm(reference, axis=1)
    errors = np.linalg.norm(found - reference, axis=1)
    relative = np.where(
        lengths > 0, errors / np.where(lengths > 0, lengths, 1.0), np.where(errors > 0, 2.0, 0.0)
    )
    score: Array = np.maximum(1.0 - relative, -1.0)
    return score
