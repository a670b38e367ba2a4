"""When open and closed loops send, over any number of load processes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundhouse.load_test.driving.closed_loop import comings
from roundhouse.load_test.driving.open_loop import moments
from roundhouse.load_test.driving.orders import Run
from roundhouse.load_test.traffic import Arrivals, Loop, Phase


def runs(workers, **changes):
    phase = Phase(**{"name": "p", "loop": Loop.open, "start": 100.0, "seconds": 10.0} | changes)
    return [
        Run(number=0, phase=phase, begin=0.0, worker=worker, workers=workers)
        for worker in range(workers)
    ]


@given(st.integers(1, 7))
def test_even_arrivals_are_even_over_all_processes(workers):
    found = sorted(moment for run in runs(workers) for moment in moments(run, Arrivals.even, 1))
    assert found == pytest.approx([(number + 0.5) / 100 for number in range(1000)])


@given(st.integers(1, 5), st.integers(0, 1000))
def test_poisson_arrivals_have_the_rate_and_stay_in_the_phase(workers, seed):
    found = [moment for run in runs(workers) for moment in moments(run, Arrivals.poisson, seed)]
    assert 1000 - 6 * 1000**0.5 < len(found) < 1000 + 6 * 1000**0.5
    assert all(0 < moment < 10 for moment in found)


def test_poisson_arrivals_vary_and_follow_the_seed():
    (run,) = runs(1)
    found = list(moments(run, Arrivals.poisson, 1))
    assert (
        found == list(moments(run, Arrivals.poisson, 1)) != list(moments(run, Arrivals.poisson, 2))
    )
    gaps = [after - before for before, after in itertools.pairwise(found)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert 0.8 < spread / mean < 1.2


def test_a_ramp_sends_more_in_its_later_half():
    found = [
        moment
        for run in runs(2, start=0.0, spawn=600.0)
        for moment in moments(run, Arrivals.even, 1)
    ]
    assert len(found) == 500
    assert sum(moment < 5 for moment in found) == 125


@given(st.integers(1, 5))
def test_users_are_shared_out_and_none_is_lost(workers):
    changes = {"loop": Loop.closed, "start": 3.0, "spawn": 60.0}
    found = sorted(moment for run in runs(workers, **changes) for moment in comings(run))
    assert found == [0, 0, 0, *range(1, 10)]
