"""How long a row of some length takes, from what a benchmark measured at its shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.samples.feed import Array
from onboarding.manifest import BenchmarkRecord


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
    """Seconds of a row by its length: the best measured at each length, a straight line between
    two, and beyond the longest in
    proportion. None when nothing was measured."""
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
