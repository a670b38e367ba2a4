"""Verdicts on phases, and the search for the highest rate that holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundhouse.load_test.options import LatencyStop, Loop
from roundhouse.load_test.saturation import (
    CLOSE_ENOUGH,
    MAX_STEPS,
    Bounds,
    Outcome,
    Step,
    bounds,
    is_exact,
    next_rate,
    tool_limit,
    verdict,
)
from tests.unit.roundhouse.load_test.phases import measurement, second

HELD, MISSED = Outcome.held, Outcome.missed


def search(outcome, first):
    """Run a whole search; `outcome` is asked for each rate and the steps before."""
    steps = []
    while (rate := next_rate(steps, first)) is not None:
        steps.append(Step(rate=rate, outcome=outcome(rate, steps)))
        assert len(steps) <= MAX_STEPS
    return steps


@given(st.floats(10, 1e5), st.floats(0.05, 1.5))
def test_the_search_ends_close_below_the_limit(limit, share):
    steps = search(lambda rate, steps: HELD if rate <= limit else MISSED, limit * share)
    found = bounds(steps)
    assert is_exact(steps)
    assert found.held <= limit < found.missed <= found.held * CLOSE_ENOUGH


@given(st.integers(0, 12))
def test_one_bad_moment_does_not_lower_the_result(moment):
    steps = search(lambda rate, steps: MISSED if rate > 1000 or len(steps) == moment else HELD, 100)
    assert 950 < bounds(steps).held <= 1000


@given(st.integers(0, 12))
def test_one_good_moment_does_not_raise_the_result(moment):
    steps = search(
        lambda rate, steps: HELD if rate <= 1000 or len(steps) == moment else MISSED, 100
    )
    assert 950 < bounds(steps).held <= 1000


def test_a_rate_that_missed_and_held_is_decided_by_a_third_step():
    steps = [Step(rate=754, outcome=MISSED), Step(rate=754, outcome=HELD)]
    assert next_rate(steps, 754) == 754
    assert bounds(steps) == Bounds(held=None, missed=None)
    assert bounds([*steps, Step(rate=754, outcome=MISSED)]) == Bounds(held=None, missed=754)


def test_both_ends_of_an_exact_result_have_two_steps_of_their_outcome():
    steps = search(lambda rate, steps: HELD if rate <= 1000 else MISSED, 100)
    found = bounds(steps)
    outcomes = [(step.rate, step.outcome) for step in steps]
    assert outcomes.count((found.held, HELD)) == outcomes.count((found.missed, MISSED)) == 2


def test_a_rate_that_missed_twice_outweighs_a_higher_one_that_held():
    pairs = [(100, HELD), (200, MISSED), (200, MISSED), (210, HELD)]
    steps = [Step(rate=rate, outcome=outcome) for rate, outcome in pairs]
    assert bounds(steps) == Bounds(held=100, missed=200)


def test_the_search_goes_down_where_the_first_rate_misses():
    steps = search(lambda rate, steps: HELD if rate <= 5 else MISSED, 100)
    assert bounds(steps).held <= 5


def test_refuses_to_search_below_a_share_of_the_first_rate():
    steps = search(lambda rate, steps: MISSED, 1.0)
    assert bounds(steps).held is None
    assert min(step.rate for step in steps) == 1 / 32


def test_refuses_to_go_on_without_samples():
    assert next_rate([Step(rate=5, outcome=Outcome.unproven)], 5) is None


def test_a_latency_stop_looks_at_the_newest_seconds():
    slow = [second(5.0)] * 5 + [second(50.0)] * 3
    stop = LatencyStop(percentile=95, milliseconds=20)
    assert measurement(*slow).is_above(stop)
    assert not measurement(*slow[:6]).is_above(LatencyStop(percentile=50, milliseconds=20))
    assert not measurement(*slow[:2]).is_above(LatencyStop(percentile=50, milliseconds=1))


def test_a_phase_within_the_slo_held():
    assert verdict(measurement(second(), second()), 20).outcome is HELD


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (measurement(second(), *[second(30.0)] * 2), "p99 30.0 ms above 20 ms"),
        (
            measurement(second(), second(errors={"HTTP 503: full": 4})),
            "4 errors: HTTP 503: full",
        ),
        (measurement(second(), *[second(answered=500)] * 2), "requests piled up"),
        (measurement(second(30.0, 100), rate=100.0), "even p50 30.0 ms is above 20 ms"),
        (measurement(second(30.0, 400), rate=400.0), "even p95 30.0 ms"),
        (
            measurement(second(60.0, service=40.0, lag=20.0)),
            "p99 60.0 ms above 20 ms",
        ),
    ],
    ids=["latency", "errors", "pile-up", "few answers", "more answers", "slow server, late tool"],
)
def test_a_phase_misses(phase, reason):
    found = verdict(phase, 20)
    assert found.outcome is MISSED
    assert reason in found.reason


def test_refuses_a_verdict_on_too_few_answers():
    found = verdict(measurement(second(count=400), rate=400.0), 20)
    assert found.outcome is Outcome.unproven
    assert "400 answers; p99 needs 1,000" in found.reason


def test_the_tools_own_lateness_is_not_the_servers_miss():
    found = verdict(measurement(second(30.0, service=5.0, lag=25.0)), 20)
    assert found.outcome is Outcome.tool
    assert "its own p99 lag was 25.0 ms" in found.reason


def test_a_busy_core_of_the_tool_is_not_the_servers_miss():
    busy = measurement(second(30.0, cpu_share=0.99), second(30.0, cpu_share=0.97))
    assert verdict(busy, 20).outcome is Outcome.tool
    assert "98% of a core" in tool_limit(busy)


def test_a_closed_loop_piles_nothing_up():
    found = measurement(second(answered=100, count=100, intended=1000), loop=Loop.closed)
    assert verdict(found, 20).outcome is Outcome.unproven
