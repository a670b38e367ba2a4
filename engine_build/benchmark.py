"""The benchmark step: every subject at every shape, in random order, with a duplicate of the baseline as a control."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.feed import Feed, Shape
from onboarding.manifest import BenchmarkRecord
from onboarding.model_spec import OptimizationProfileSpec

CONTROL = " (duplicate control)"
HEADS = ("runtime", "precision", "batch x tokens", "average ms", "p50", "p95", "p99", "rows/s", "runs")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Something that answers."""

    runtime: str
    precision: str
    run: Callable[[Feed], object]


def shapes(profiles: Sequence[OptimizationProfileSpec]) -> tuple[Shape, ...]:
    """min, opt and max of every profile, each once."""
    found = [
        Shape(batch=profile.batch[place], sequence=None if profile.sequence is None else profile.sequence[place])
        for profile in profiles
        for place in range(3)
    ]
    return tuple(dict.fromkeys(found))


def with_control(subjects: Sequence[Subject]) -> tuple[Subject, ...]:
    """The subjects, and the first once more: what differs between the two is noise."""
    first = subjects[0]
    return (*subjects, Subject(runtime=first.runtime, precision=first.precision + CONTROL, run=first.run))


def benchmark(
    subjects: Sequence[Subject],
    feeds: Sequence[tuple[Shape, Feed]],
    *,
    seconds: float,
    weight: Callable[[Shape], float] = lambda shape: 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[BenchmarkRecord, ...]:
    """Latencies of every subject at every shape; each shape's share of the time has its weight."""
    order = random.Random(0)
    weights = [weight(shape) for shape, _ in feeds]
    return tuple(
        record
        for share, (shape, feed) in zip(weights, feeds, strict=True)
        for record in _at_shape(subjects, shape, feed, seconds * share / sum(weights), order, clock)
    )


def _at_shape(
    subjects: Sequence[Subject], shape: Shape, feed: Feed, seconds: float, order: random.Random, clock: Callable[[], float]
) -> list[BenchmarkRecord]:
    for subject in subjects:
        subject.run(feed)
    latencies: list[list[float]] = [[] for _ in subjects]
    end = clock() + seconds
    while not latencies[0] or clock() < end:
        for index in order.sample(range(len(subjects)), len(subjects)):
            begin = clock()
            subjects[index].run(feed)
            latencies[index].append((clock() - begin) * 1000)
    return [_record(subject, shape, found) for subject, found in zip(subjects, latencies, strict=True)]


def _record(subject: Subject, shape: Shape, milliseconds: Sequence[float]) -> BenchmarkRecord:
    p50, p95, p99 = (round(float(np.percentile(milliseconds, percent)), 4) for percent in (50, 95, 99))
    average = float(np.mean(milliseconds))
    return BenchmarkRecord(
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


def table(records: Sequence[BenchmarkRecord]) -> str:
    """The classic table, as plain text."""
    rows = [HEADS, *(_cells(record) for record in records)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(_aligned(row, widths)).rstrip() for row in rows)


def _cells(record: BenchmarkRecord) -> tuple[str, ...]:
    latencies = (record.average_ms, record.p50_ms, record.p95_ms, record.p99_ms)
    told = [f"{milliseconds:.2f}" for milliseconds in latencies]
    shape = str(Shape(batch=record.batch, sequence=record.sequence))
    return (record.runtime, record.precision, shape, *told, f"{record.rows_per_second:.0f}", str(record.repetitions))


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Words to the left, numbers to the right."""
    words = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
    return words + [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
