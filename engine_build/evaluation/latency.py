"""Latencies in rounds: in each, every subject takes its turn, in random order, so that what
disturbs the machine disturbs all.

The rounds of all shapes take turns too, so that each shape sees the whole measurement's weather and
not one spell of it.

The classic table of latencies: average, p50, p95, p99, requests per second.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.datasets.feed import Array, Feed, Shape

CONTROL = " (duplicate control)"
WARM_UP_SECONDS = 0.03
"""A subject warms up at a shape for as long as this, and with one run at least."""
TURN_MILLISECONDS = 5.0
MOST_RUNS_A_TURN = 8
"""Short runs are repeated within a turn: a scheduler's tick is as long as some of them."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Something that answers."""

    runtime: str
    precision: str
    run: Callable[[Feed], object]
    every: int = 1
    """The rounds it takes part in: 1, all; 4, every fourth."""


@dataclass(frozen=True, kw_only=True)
class Track:
    """One shape to measure at."""

    shape: Shape
    feed: Feed
    weight: float = 1.0
    """Its part of the time, against the others'."""
    least: int = 1
    """Rounds that are measured even when the time is over."""


@dataclass(frozen=True, kw_only=True)
class Latencies:
    """Milliseconds at one shape, [rounds, subjects, runs of a turn]; NaN where a subject sat a
    round out.
    """

    shape: Shape
    milliseconds: Array

    def of(self, subject: int) -> Array:
        """Every run of a subject."""
        found = self.milliseconds[:, subject].ravel()
        kept: Array = found[~np.isnan(found)]
        return kept

    def ratios(self, slower: int, faster: int) -> Array:
        """How many times as fast one subject was as another, in every round that both were in.

        Each stands for its best run of the round: what disturbs a run only ever makes it longer.
        """
        pair = self.milliseconds[:, [slower, faster]].min(axis=2)
        both = pair[~np.isnan(pair).any(axis=1)]
        found: Array = both[:, 0] / both[:, 1]
        return found


def latencies(
    subjects: Sequence[Subject],
    tracks: Sequence[Track],
    *,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Latencies, ...]:
    """Measures for about so many seconds; warm-up counts, and the least rounds of every track are
    never left out.
    """
    order, end = random.Random(0), clock() + seconds
    courses = [_Course(subjects, track, clock) for track in tracks]
    while (course := _next(courses, is_over=clock() >= end)) is not None:
        course.run_round(order)
    return tuple(course.latencies() for course in courses)


def _next(courses: Sequence[_Course], *, is_over: bool) -> _Course | None:
    """The course that has had the least of its part of the time."""
    waiting = [course for course in courses if not is_over or course.rounds < course.track.least]
    return min(waiting, key=lambda course: course.spent / course.track.weight, default=None)


class _Course:
    """The rounds of one shape so far."""

    def __init__(
        self, subjects: Sequence[Subject], track: Track, clock: Callable[[], float]
    ) -> None:
        self.track = track
        self.spent = 0.0
        self._subjects = subjects
        self._clock = clock
        self._runs = _runs_a_turn([self._warm_up(subject) for subject in subjects])
        self._found: list[Array] = []

    @property
    def rounds(self) -> int:
        """How many are done."""
        return len(self._found)

    def run_round(self, order: random.Random) -> None:
        """One more."""
        begin = self._clock()
        found = np.full((len(self._subjects), self._runs), np.nan)
        for index in order.sample(range(len(self._subjects)), len(self._subjects)):
            if self.rounds % self._subjects[index].every == 0:
                found[index] = [self._timed(self._subjects[index]) for _ in range(self._runs)]
        self._found.append(found)
        self.spent += self._clock() - begin

    def latencies(self) -> Latencies:
        """What was found."""
        return Latencies(shape=self.track.shape, milliseconds=np.stack(self._found))

    def _warm_up(self, subject: Subject) -> float:
        """Milliseconds of the last run."""
        begin = self._clock()
        last = self._timed(subject)
        while self._clock() - begin < WARM_UP_SECONDS:
            last = self._timed(subject)
        return last

    def _timed(self, subject: Subject) -> float:
        begin = self._clock()
        subject.run(self.track.feed)
        return (self._clock() - begin) * 1000


def _runs_a_turn(warm: Sequence[float]) -> int:
    """The same for every subject: the best of more runs is better by luck alone."""
    typical = max(float(np.median(warm)), 1e-6)
    return max(1, min(MOST_RUNS_A_TURN, math.ceil(TURN_MILLISECONDS / typical)))


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
