"""Latencies in rounds, on a clock that the subjects themselves move."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.runtimes.rounds import MOST_RUNS_A_TURN, Latencies, Subject, Track, latencies
from engine_build.samples.feed import Shape


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

        return Subject(runtime="r", precision=name, run=run, **changes)


def track(batch, **changes):
    return Track(shape=Shape(batch=batch, sequence=8), feed={"shape": batch}, **changes)


def test_every_subject_takes_its_turn_in_every_round():
    clock = Clock()
    subjects = [clock.subject("slow", 20.0), clock.subject("fast", 10.0)]
    (found,) = latencies(subjects, [track(1)], seconds=1.0, clock=clock)
    assert found.of(0) == pytest.approx(np.full(len(found.of(0)), 20.0))
    assert len(found.of(0)) == len(found.of(1)) == len(found.ratios(0, 1))
    assert found.ratios(0, 1) == pytest.approx(np.full(len(found.of(0)), 2.0))


def test_order_of_turns_is_random_and_the_same_every_time():
    def order():
        clock = Clock()
        latencies(
            [clock.subject("a", 10.0), clock.subject("b", 10.0)],
            [track(1)],
            seconds=1.0,
            clock=clock,
        )
        return [name for name, _ in clock.runs[8:]]

    assert order() == order()
    pairs = set(zip(order()[::2], order()[1::2], strict=False))
    assert {("a", "b"), ("b", "a")} <= pairs


def test_measurement_ends_when_its_time_is_over():
    clock = Clock()
    latencies([clock.subject("a", 10.0)], [track(1), track(2)], seconds=2.0, clock=clock)
    assert clock.now == pytest.approx(2.0, abs=0.05)


def test_shapes_take_turns_and_share_the_time_by_weight():
    clock = Clock()
    found = latencies(
        [clock.subject("a", 10.0)], [track(1), track(2, weight=3.0)], seconds=4.0, clock=clock
    )
    assert found[1].of(0).size == pytest.approx(3 * found[0].of(0).size, rel=0.05)
    half = [batch for _, batch in clock.runs[len(clock.runs) // 2 :]]
    assert set(half) == {1, 2}, "no shape is over while another has not begun"


def test_least_rounds_are_measured_even_without_time():
    clock = Clock()
    found = latencies(
        [clock.subject("a", 10.0)], [track(1), track(2, least=7)], seconds=0.0, clock=clock
    )
    assert [each.milliseconds.shape[0] for each in found] == [1, 7]


def test_rivals_take_part_in_some_rounds_only():
    clock = Clock()
    subjects = [clock.subject("a", 10.0), clock.subject("rival", 10.0, every=4)]
    (found,) = latencies(subjects, [track(1, least=9)], seconds=0.0, clock=clock)
    assert (len(found.of(0)), len(found.of(1)), len(found.ratios(0, 1))) == (9, 3, 3)


def test_short_runs_are_repeated_within_a_turn_as_often_for_everybody():
    clock = Clock()
    subjects = [clock.subject("a", 0.1), clock.subject("b", 0.2)]
    (found,) = latencies(subjects, [track(1, least=2)], seconds=0.0, clock=clock)
    assert found.milliseconds.shape == (2, 2, MOST_RUNS_A_TURN)


def test_round_counts_by_its_best_run():
    found = Latencies(shape=Shape(batch=1), milliseconds=np.array([[[10.0, 30.0], [5.0, 90.0]]]))
    assert found.ratios(0, 1).tolist() == [2.0]
    assert found.of(1).tolist() == [5.0, 90.0]
