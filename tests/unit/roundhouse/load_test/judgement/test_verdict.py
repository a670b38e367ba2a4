"""Phases put together from seconds, and what they come to against an SLO."""

from __future__ import annotations

import pytest

from roundhouse.load_test.judgement.verdict import Outcome, tool_limit, verdict
from roundhouse.load_test.traffic import LatencyStop, Loop
from tests.unit.roundhouse.load_test.seconds import encoded, measured, second


def test_seconds_of_several_processes_become_one_phase():
    found = measured(second(0, worker=0), second(0, worker=1), second(1, faults={"HTTP 503": 3}))
    assert (found.answered, found.failed, len(found.latency)) == (3000, 3, 3000)
    assert found.ordered[0].answered == 2000
    assert found.latency.milliseconds(99) == pytest.approx(5, rel=2e-3)


def test_a_latency_stop_looks_at_the_newest_seconds():
    slow = [second(number, 5.0) for number in range(5)] + [
        second(number, 50.0) for number in range(5, 8)
    ]
    stop = LatencyStop(percentile=95, milliseconds=20)
    assert measured(*slow).is_above(stop)
    assert not measured(*slow[:6]).is_above(LatencyStop(percentile=50, milliseconds=20))
    assert not measured(*slow[:2]).is_above(LatencyStop(percentile=50, milliseconds=1))


def test_a_phase_within_the_slo_held():
    assert verdict(measured(second(0), second(1)), 20).outcome is Outcome.held


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"milliseconds": 30.0}, "p99 30.0 ms above 20 ms"),
        ({"faults": {"HTTP 503: full": 2}}, "4 faults: HTTP 503: full"),
        ({"answered": 500}, "requests piled up"),
    ],
)
def test_a_phase_misses_by_latency_faults_or_what_piles_up(change, said):
    found = verdict(measured(second(0), second(1, **change), second(2, **change)), 20)
    assert found.outcome is Outcome.missed
    assert said in found.reason


def test_refuses_to_judge_by_too_few_answers():
    found = verdict(measured(second(0, count=400), rate=400.0), 20)
    assert found.outcome is Outcome.unproven
    assert "400 answers; p99 needs 1,000" in found.reason


def test_few_answers_are_enough_to_miss_where_a_lower_percentile_is_above():
    found = verdict(measured(second(0, 30.0, count=100), rate=100.0), 20)
    assert (found.outcome, found.reason) == (Outcome.missed, "even p50 30.0 ms is above 20 ms")
    assert (
        "even p95 30.0 ms" in verdict(measured(second(0, 30.0, count=400), rate=400.0), 20).reason
    )


def test_the_tool_is_blamed_for_its_own_lateness():
    late = second(0, 30.0, service=encoded(5.0, 1000), lag=encoded(25.0, 1000))
    found = verdict(measured(late), 20)
    assert found.outcome is Outcome.tool
    assert "its own p99 lag was 25.0 ms" in found.reason


def test_the_tool_is_not_blamed_for_a_server_that_is_slow_by_itself():
    late = second(0, 60.0, service=encoded(40.0, 1000), lag=encoded(20.0, 1000))
    assert verdict(measured(late), 20).outcome is Outcome.missed


def test_the_tool_is_blamed_for_a_busy_core():
    busy = measured(second(0, 30.0, cpu_share=0.99), second(1, 30.0, cpu_share=0.97))
    assert verdict(busy, 20).outcome is Outcome.tool
    assert "98% of a core" in tool_limit(busy)


def test_a_closed_loop_piles_nothing_up():
    found = measured(second(0, answered=100), loop=Loop.closed)
    assert verdict(found, 20).outcome is Outcome.held
