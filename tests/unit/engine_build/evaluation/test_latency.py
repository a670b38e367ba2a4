"""Latencies in rounds, on a clock that the subjects themselves move; the classic table."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from engine_build.datasets.dataset import Shape
from engine_build.evaluation.latency import (
    MOST_RUNS_A_TURN,
    Engine,
    Latencies,
    Track,
    format_latencies,
    measure_latencies,
    summaries,
    summary,
)


class Clock:
    """Stands still until a subject runs."""

    def __init__(self):
        self.now = 0.0
        self.runs = []

    def __call__(self):
        return self.now

    def subject(self, name, milliseconds, **changes):
        def run(feed):
            self.runs.append((name, feed["shape"]))
            self.now += milliseconds / 1000

        return Engine(runtime="r", precision=name, run=run, **changes)

    def measure(self, subjects, tracks, seconds):
        return measure_latencies(subjects, tracks, seconds=seconds, clock=self)


@pytest.fixture
def clock():
    return Clock()


def track(batch, **changes):
    return Track(shape=Shape(batch=batch, sequence=8), feed={"shape": batch}, **changes)


def test_every_subject_takes_its_turn_in_every_round(clock):
    subjects = [clock.subject("slow", 20.0), clock.subject("fast", 10.0)]
    (latencies,) = clock.measure(subjects, [track(1)], 1.0)
    rounds = len(latencies.of(0))
    assert latencies.of(0) == pytest.approx(np.full(rounds, 20.0))
    assert len(latencies.of(1)) == rounds
    assert latencies.ratios(0, 1) == pytest.approx(np.full(rounds, 2.0))


def test_settling_runs_come_before_each_turn_and_are_not_measured(clock):
    """A plan's first runs of a shape prepare it, and are slower."""
    subject, runs = clock.subject("plan", 0.0, settling=2), []

    def run(feed):
        turn = len(runs) if not runs or runs[-1] == feed["shape"] else 0
        runs[:] = [*runs[:turn], feed["shape"]]
        clock.now += 0.05 if len(runs) <= 2 else 0.004

    subject = dataclasses.replace(subject, run=run)
    for latencies in clock.measure([subject], [track(1), track(2)], 5.0):
        assert latencies.of(0) == pytest.approx(np.full(len(latencies.of(0)), 4.0))


def test_order_of_turns_is_random_and_the_same_every_time():
    def order():
        clock = Clock()
        clock.measure([clock.subject("a", 10.0), clock.subject("b", 10.0)], [track(1)], 1.0)
        return [name for name, _ in clock.runs[8:]]

    assert order() == order()
    pairs = set(zip(order()[::2], order()[1::2], strict=False))
    assert {("a", "b"), ("b", "a")} <= pairs


def test_shapes_take_turns_share_the_time_by_weight_and_end_when_it_is_over(clock):
    tracks = [track(1), track(2, weight=3.0)]
    light, heavy = clock.measure([clock.subject("a", 10.0)], tracks, 4.0)
    assert heavy.of(0).size == pytest.approx(3 * light.of(0).size, rel=0.05)
    half = [batch for _, batch in clock.runs[len(clock.runs) // 2 :]]
    assert set(half) == {1, 2}, "no shape is over while another has not begun"
    assert clock.now == pytest.approx(4.0, abs=0.05)


def test_least_rounds_are_measured_without_time_and_rivals_take_part_in_some_only(clock):
    subjects = [clock.subject("a", 10.0), clock.subject("rival", 10.0, every=4)]
    once, latencies = clock.measure(subjects, [track(1), track(2, least=9)], 0.0)
    assert [len(item.milliseconds) for item in (once, latencies)] == [1, 9]
    assert (len(latencies.of(0)), len(latencies.of(1))) == (9, 3)
    assert len(latencies.ratios(0, 1)) == 3


def test_short_runs_are_repeated_within_a_turn_as_often_for_everybody(clock):
    subjects = [clock.subject("a", 0.1), clock.subject("b", 0.2)]
    (latencies,) = clock.measure(subjects, [track(1, least=2)], 0.0)
    assert latencies.milliseconds.shape == (2, 2, MOST_RUNS_A_TURN)


SUBJECT = Engine(runtime="onnxruntime", precision="fp32", run=len)


def test_round_counts_by_its_best_run_and_a_subject_by_its_own_runs():
    times = np.array([[[10.0, 30.0], [5.0, 90.0]], [[10.0, 30.0], [np.nan, np.nan]]])
    latencies = Latencies(shape=Shape(batch=1), milliseconds=times)
    assert latencies.ratios(0, 1).tolist() == [2.0]
    assert latencies.of(1).tolist() == [5.0, 90.0]
    first, second = summaries([SUBJECT, SUBJECT], [latencies])
    assert (first.repetitions, second.repetitions, second.average_ms) == (4, 2, 47.5)


def test_summary_has_percentiles_and_rates_and_the_table_a_line_for_every_shape():
    record = summary(SUBJECT, Shape(batch=4, sequence=8), np.arange(1.0, 102.0))
    percentiles = (record.p50_ms, record.p95_ms, record.p99_ms)
    assert (record.average_ms, percentiles) == (51.0, (51.0, 96.0, 100.0))
    assert (record.rows_per_second, record.repetitions) == (78.43, 101)
    shapes = [Shape(batch=1, sequence=8), Shape(batch=4)]
    times = np.full((3, 1, 2), 20.0)
    measured = [Latencies(shape=shape, milliseconds=times) for shape in shapes]
    lines = format_latencies(summaries([SUBJECT], measured)).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "runtime precision batch x tokens average ms p50 p95 p99 requests/s rows/s runs",
        "onnxruntime fp32 1 x 8 20.00 20.00 20.00 20.00 50.0 50 6",
        "onnxruntime fp32 4 20.00 20.00 20.00 20.00 50.0 200 6",
    ]
    assert len({len(line) for line in lines}) == 1
