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
from onboarding.manifest import BenchmarkRecord

CONTROL = " (duplicate control)"
WARM_UP_SECONDS = 0.03
"""An engine warms up at a shape for as long as this, and with one run at least."""
SETTLING_RUNS = 2
"""Of a plan: the first run of a shape prepares its context, the second records its CUDA graph."""
TURN_MILLISECONDS = 5.0
MOST_RUNS_A_TURN = 8
"""Short runs are repeated within a turn: a scheduler's tick is as long as some of them."""
HEADS = (
    *("runtime", "precision", "batch x tokens", "average ms", "p50", "p95", "p99"),
    *("requests/s", "rows/s", "runs"),
)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A loaded engine, network or module to measure."""

    runtime: str
    precision: str
    run: Callable[[Feed], object]
    every: int = 1
    """The rounds it runs in: 1, all; 4, every fourth."""
    settling: float = 0.0
    """Seconds that it runs before each turn, twice at least, and is not measured; 0: not at all."""


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
        measured: Array = runs[~np.isnan(runs)]
        return measured

    def ratios(self, slower: int, faster: int) -> Array:
        """Return how many times as fast one engine was as another, in each round of both.

        Each stands for its best run of the round: what disturbs a run only ever makes it longer.
        """
        pair = self.milliseconds[:, [slower, faster]].min(axis=2)
        both = pair[~np.isnan(pair).any(axis=1)]
        ratios: Array = both[:, 0] / both[:, 1]
        return ratios


def measure_latencies(
    engines: Sequence[Engine],
    tracks: Sequence[Track],
    *,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Latencies, ...]:
    """Measure for about so many seconds, warm-up included, and each track's least rounds."""
    order, end = random.Random(0), clock() + seconds
    tracked = [_Series(engines, track, clock) for track in tracks]
    while True:
        is_over = clock() >= end
        waiting = [
            series for series in tracked if not is_over or len(series.rounds) < series.track.least
        ]
        if not waiting:
            break
        min(waiting, key=lambda series: series.spent / series.track.weight).run_round(order)
    return tuple(
        Latencies(shape=series.track.shape, milliseconds=np.stack(series.rounds))
        for series in tracked
    )


class _Series:
    """The rounds of one shape so far."""

    def __init__(self, engines: Sequence[Engine], track: Track, clock: Callable[[], float]) -> None:
        self.track = track
        self.spent = 0.0
        self.rounds: list[Array] = []
        self._engines = engines
        self._clock = clock
        # The same for every engine: the best of more runs is better by luck alone.
        typical = max(float(np.median([self._warm_up(engine) for engine in engines])), 1e-6)
        self._runs = max(1, min(MOST_RUNS_A_TURN, math.ceil(TURN_MILLISECONDS / typical)))

    def run_round(self, order: random.Random) -> None:
        begin = self._clock()
        milliseconds = np.full((len(self._engines), self._runs), np.nan)
        for index in order.sample(range(len(self._engines)), len(self._engines)):
            engine = self._engines[index]
            if len(self.rounds) % engine.every != 0:
                continue
            end, settled = self._clock() + engine.settling, 0
            while engine.settling and (settled < SETTLING_RUNS or self._clock() < end):
                engine.run(self.track.feed)
                settled += 1
            milliseconds[index] = [self._time(engine) for _ in range(self._runs)]
        self.rounds.append(milliseconds)
        self.spent += self._clock() - begin

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


def summaries(
    engines: Sequence[Engine], measured: Sequence[Latencies]
) -> tuple[BenchmarkRecord, ...]:
    """Return every engine at every shape; a request is one batch."""
    return tuple(
        summary(engine, latencies.shape, latencies.of(index))
        for latencies in measured
        for index, engine in enumerate(engines)
    )


def summary(engine: Engine, shape: Shape, milliseconds: Array) -> BenchmarkRecord:
    """Return the statistics of an engine's runs."""
    p50, p95, p99 = (round(float(np.percentile(milliseconds, part)), 4) for part in (50, 95, 99))
    average = float(np.mean(milliseconds))
    return BenchmarkRecord(
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


def format_latencies(records: Sequence[BenchmarkRecord]) -> str:
    """Return the table, as plain text."""
    rows: list[tuple[str, ...]] = [HEADS]
    for record in records:
        shape = str(Shape(batch=record.batch, sequence=record.sequence))
        times = (record.average_ms, record.p50_ms, record.p95_ms, record.p99_ms)
        requests = f"{record.rows_per_second / record.batch:.1f}"
        rates = (requests, f"{record.rows_per_second:.0f}", str(record.repetitions))
        texts = (record.runtime, record.precision, shape)
        rows.append((*texts, *(f"{milliseconds:.2f}" for milliseconds in times), *rates))
    return format_table(rows)


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Return aligned rows under their heads: two columns of text left, the numbers right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    alignments = ["<"] * 2 + [">"] * (len(widths) - 2)
    form = "  " + "  ".join(
        f"{{:{align}{width}}}" for align, width in zip(alignments, widths, strict=True)
    )
    return "\n".join(form.format(*row).rstrip() for row in rows)
