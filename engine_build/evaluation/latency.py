"""Latencies in rounds: in each, every engine runs once, in random order.

So what disturbs the machine disturbs all engines. The rounds of all shapes take turns too, so that
each shape sees the whole measurement and not one spell of it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.datasets.dataset import Array, Feed, Shape

CONTROL = " (duplicate control)"
WARM_UP_SECONDS = 0.03
"""An engine warms up at a shape for as long as this, and with one run at least."""
TURN_MILLISECONDS = 5.0
MOST_RUNS_A_TURN = 8
"""Short runs are repeated within a turn: a scheduler's tick is as long as some of them."""
HEADS = [
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
]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A loaded engine, network or module to measure."""

    runtime: str
    precision: str
    run: Callable[[Feed], object]
    every: int = 1
    """The rounds it runs in: 1, all; 4, every fourth."""


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
    """Milliseconds at one shape, [rounds, engines, runs of a turn]; NaN where one did not run."""

    shape: Shape
    milliseconds: Array

    def of(self, engine: int) -> Array:
        """Return every run of an engine."""
        runs = self.milliseconds[:, engine].ravel()
        selected: Array = runs[~np.isnan(runs)]
        return selected

    def ratios(self, slower: int, faster: int) -> Array:
        """Return how many times as fast one engine was as another, in each round of both.

        Each stands for its best run of the round: what disturbs a run only ever makes it longer.
        """
        pair = self.milliseconds[:, [slower, faster]].min(axis=2)
        both = pair[~np.isnan(pair).any(axis=1)]
        ratios: Array = both[:, 0] / both[:, 1]
        return ratios


@dataclass(frozen=True, kw_only=True)
class Latency:
    """One engine at one shape; a request is one batch."""

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


def measure_latencies(
    engines: Sequence[Engine],
    tracks: Sequence[Track],
    *,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Latencies, ...]:
    """Measure for about so many seconds; warm-up counts.

    The least rounds of every track are never left out.
    """
    order, end = random.Random(0), clock() + seconds
    series = [_Series(engines, track, clock) for track in tracks]
    while True:
        is_over = clock() >= end
        waiting = [item for item in series if not is_over or item.rounds < item.track.least]
        if not waiting:
            return tuple(item.latencies() for item in series)
        min(waiting, key=lambda item: item.spent / item.track.weight).run_round(order)


class _Series:
    """The rounds of one shape so far."""

    def __init__(self, engines: Sequence[Engine], track: Track, clock: Callable[[], float]) -> None:
        self.track = track
        self.spent = 0.0
        self._engines = engines
        self._clock = clock
        self._runs = _runs_a_turn([self._warm_up(engine) for engine in engines])
        self._rounds: list[Array] = []

    @property
    def rounds(self) -> int:
        return len(self._rounds)

    def run_round(self, order: random.Random) -> None:
        begin = self._clock()
        milliseconds = np.full((len(self._engines), self._runs), np.nan)
        for index in order.sample(range(len(self._engines)), len(self._engines)):
            engine = self._engines[index]
            if self.rounds % engine.every == 0:
                milliseconds[index] = [self._time(engine) for _ in range(self._runs)]
        self._rounds.append(milliseconds)
        self.spent += self._clock() - begin

    def latencies(self) -> Latencies:
        return Latencies(shape=self.track.shape, milliseconds=np.stack(self._rounds))

    def _warm_up(self, engine: Engine) -> float:
        """Return the milliseconds of the last run."""
        begin = self._clock()
        last = self._time(engine)
        while self._clock() - begin < WARM_UP_SECONDS:
            last = self._time(engine)
        return last

    def _time(self, engine: Engine) -> float:
        begin = self._clock()
        engine.run(self.track.feed)
        return (self._clock() - begin) * 1000


def summaries(engines: Sequence[Engine], measured: Sequence[Latencies]) -> tuple[Latency, ...]:
    """Return every engine at every shape."""
    return tuple(
        summary(engine, latencies.shape, latencies.of(index))
        for latencies in measured
        for index, engine in enumerate(engines)
    )


def summary(engine: Engine, shape: Shape, milliseconds: Array) -> Latency:
    """Return the statistics of an engine's runs."""
    p50, p95, p99 = (round(float(np.percentile(milliseconds, part)), 4) for part in (50, 95, 99))
    average = float(np.mean(milliseconds))
    return Latency(
        runtime=engine.runtime,
        precision=engine.precision,
        batch=shape.batch,
        sequence=shape.sequence,
        average_ms=round(average, 4),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        rows_per_second=round(shape.batch * 1000 / average, 2),
        repetitions=len(milliseconds),
    )


def format_latencies(rows: Sequence[Latency]) -> str:
    """Return the table, as plain text."""
    return format_table([HEADS, *map(_cells, rows)], text_columns=2)


def format_table(rows: Sequence[Sequence[str]], *, text_columns: int) -> str:
    """Return aligned rows under their heads: the first columns left, the numbers right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_aligned(row, widths, text_columns) for row in rows)


def _cells(row: Latency) -> tuple[str, ...]:
    times = (row.average_ms, row.p50_ms, row.p95_ms, row.p99_ms)
    shape = str(Shape(batch=row.batch, sequence=row.sequence))
    rates = (f"{row.rows_per_second / row.batch:.1f}", f"{row.rows_per_second:.0f}")
    numbers = (*(f"{time:.2f}" for time in times), *rates, str(row.repetitions))
    return (row.runtime, row.precision, shape, *numbers)


def _aligned(row: Sequence[str], widths: Sequence[int], text_columns: int) -> str:
    cells = [
        cell.ljust(width) if place < text_columns else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  " + "  ".join(cells).rstrip()


def _runs_a_turn(warm_up: Sequence[float]) -> int:
    """Return the same for every engine: the best of more runs is better by luck alone."""
    typical = max(float(np.median(warm_up)), 1e-6)
    return max(1, min(MOST_RUNS_A_TURN, math.ceil(TURN_MILLISECONDS / typical)))
