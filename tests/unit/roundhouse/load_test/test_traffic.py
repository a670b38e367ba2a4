"""Phases: when requests are due, when users come, and what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundhouse.errors import RoundhouseError
from roundhouse.load_test.traffic import LatencyStop, Loop, Phase, latency_stop, phase


def a_phase(**changes):
    return Phase(**{"name": "phase 1", "loop": Loop.open, "start": 10.0, "seconds": 60.0} | changes)


@given(start=st.floats(0.1, 1e4), spawn=st.floats(0, 1e4), seconds=st.floats(0.1, 600))
def test_as_many_requests_are_due_by_a_moment_as_the_rate_has_come_to(start, spawn, seconds):
    count = start * seconds + spawn / 60 * seconds**2 / 2
    assert a_phase(start=start, spawn=spawn).moment(count) == pytest.approx(seconds, rel=1e-6)


def test_a_phase_that_begins_at_nothing_ramps_up():
    found = a_phase(start=0.0, spawn=120.0)
    assert found.moment(1) == pytest.approx(1.0)
    assert found.highest == 120.0
    assert a_phase(start=0.0).moment(1) == math.inf


def test_users_come_at_the_spawn_rate_of_inference_recommender():
    found = a_phase(loop=Loop.closed, start=2.0, spawn=30.0)
    assert [found.spawned(user) for user in range(5)] == [0, 0, 2, 4, 6]
    assert a_phase(loop=Loop.closed, start=2.0).spawned(2) == math.inf


def test_phases_and_stops_are_read_as_they_are_written():
    assert phase("start=1, spawn=60,seconds=120", Loop.closed, 2) == Phase(
        name="phase 2", loop=Loop.closed, start=1, spawn=60, seconds=120
    )
    assert phase("seconds=5,start=2.5", Loop.open, 1).spawn == 0
    assert latency_stop("p99.9=250") == LatencyStop(percentile=99.9, milliseconds=250)


NONE = (
    "", "start=1", "start=1,seconds=0", "start=-1,seconds=5", "start=x,seconds=5", "start=1,seconds=5,users=3",
    "start=1.5,seconds=5", "start=1,start=1,seconds=5", "start=1,seconds=nan", "start=1,seconds=inf",
)  # fmt: skip


@pytest.mark.parametrize("text", NONE)
def test_refuses_a_phase_that_is_none(text):
    with pytest.raises(RoundhouseError, match="write start=NUMBER,spawn=NUMBER,seconds=NUMBER"):
        phase(text, Loop.closed, 1)


@pytest.mark.parametrize(
    "text", ["", "p99", "99=5", "p100=5", "p0=5", "p99=0", "p99=x", "p99=inf", "pnan=5"]
)
def test_refuses_a_stop_that_is_none(text):
    with pytest.raises(RoundhouseError, match="such as p99=200"):
        latency_stop(text)
