"""The classic table of latencies: average, p50, p95, p99, requests per second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.runtimes.rounds import Latencies, Subject
from engine_build.samples.feed import Array, Shape

HEADS = (
    "runtime",
    "precision",
    "batch x tokens",
    "average ms",
    "p50",
    "p95",
    "p99",
    "requests/s",
    "rows/s",
    "runs",
)


@dataclass(frozen=True, kw_only=True)
class Latency:
    """One subject at one shape; a request is one batch."""

    runtime: str
    precision: str
    batch: int
    sequence: int | None
    average_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    rows_per_second: float
    repetitions: int


def summaries(subjects: Sequence[Subject], measured: Sequence[Latencies]) -> tuple[Latency, ...]:
    """Every subject at every shape."""
    return tuple(
        summary(subject, each.shape, each.of(index))
        for each in measured
        for index, subject in enumerate(subjects)
    )


def summary(subject: Subject, shape: Shape, milliseconds: Array) -> Latency:
    """What some runs of a subject come to."""
    p50, p95, p99 = (
        round(float(np.percentile(milliseconds, percent)), 4) for percent in (50, 95, 99)
    )
    average = float(np.mean(milliseconds))
    return Latency(
        runtime=subject.runtime,
        precision=subject.precision,
        batch=shape.batch,
        sequence=shape.sequence,
        average_ms=round(average, 4),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        rows_per_second=round(shape.batch * 1000 / average, 2),
        repetitions=len(milliseconds),
    )


def table(found: Sequence[Latency]) -> str:
    """The table, as plain text."""
    return plain_table([HEADS, *(_cells(each) for each in found)], words=2)


def plain_table(rows: Sequence[Sequence[str]], *, words: int) -> str:
    """Rows under their heads: the first columns are words and stand left, the others numbers and
    stand right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(_aligned(row, widths, words)).rstrip() for row in rows)


def _cells(each: Latency) -> tuple[str, ...]:
    latencies = [
        f"{milliseconds:.2f}"
        for milliseconds in (each.average_ms, each.p50_ms, each.p95_ms, each.p99_ms)
    ]
    shape = str(Shape(batch=each.batch, sequence=each.sequence))
    rates = (f"{each.rows_per_second / each.batch:.1f}", f"{each.rows_per_second:.0f}")
    return (each.runtime, each.precision, shape, *latencies, *rates, str(each.repetitions))


def _aligned(row: Sequence[str], widths: Sequence[int], words: int) -> list[str]:
    pairs = list(zip(row, widths, strict=True))
    return [cell.ljust(width) for cell, width in pairs[:words]] + [
        cell.rjust(width) for cell, width in pairs[words:]
    ]
