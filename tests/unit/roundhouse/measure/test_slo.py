"""Verdicts on phases, and the search for the highest rate that holds."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundhouse.measure.measurement import (
    MAX_ERROR_KINDS,
    Outcome,
    percentile,
    proven_percentile,
    samples_needed,
)
from roundhouse.measure.options import Loop
from roundhouse.measure.slo import (
    CLOSE_ENOUGH,
    MAX_STEPS,
    Step,
    bounds,
    engine_slo,
    hopeless,
    is_exact,
    lower_load,
    next_load,
    tool_limit,
    verdict,
)
from tests.unit.roundhouse.measure.phases import measurement, second

HELD, MISSED = Outcome.held, Outcome.missed
SLO = engine_slo(20)


def search(outcome, first):
    """Run a whole search; `outcome` takes each rate and the number of steps before."""
    steps = []
    while (rate := next_load(steps, first)) is not None:
        steps.append(Step(rate=rate, outcome=outcome(rate, len(steps))))
        assert len(steps) <= MAX_STEPS
    return steps


def steps_of(*pairs):
    return [Step(rate=rate, outcome=outcome) for rate, outcome in pairs]


@given(st.floats(10, 1e5), st.floats(0.05, 1.5))
def test_the_search_ends_close_below_the_limit(limit, share):
    steps = search(lambda rate, number: HELD if rate <= limit else MISSED, limit * share)
    held, missed = bounds(steps)
    assert is_exact(steps)
    assert held <= limit < missed <= held * CLOSE_ENOUGH


@pytest.mark.parametrize("outcome", [HELD, MISSED])
@given(moment=st.integers(0, 20))
def test_one_good_or_bad_moment_does_not_move_the_result(outcome, moment):
    right = {True: HELD, False: MISSED}
    steps = search(lambda rate, n: outcome if n == moment else right[rate <= 1000], 100)
    assert 950 < bounds(steps)[0] <= 1000


@pytest.mark.parametrize("width", [0.01, 0.05, 0.15])
def test_the_search_leans_neither_up_nor_down(width):
    """Steps hold by chance: half of them at the limit, the fewer the higher the rate."""
    chance, errors = random.Random(1), []
    for _ in range(400):
        limit = 1000 * math.exp(chance.uniform(0, 0.4))

        def outcome(rate, number, limit=limit):
            share = 1 / (1 + (rate / limit) ** (1 / width))
            return HELD if chance.random() < share else MISSED

        errors.append(math.log(math.sqrt(math.prod(bounds(search(outcome, 300)))) / limit))
    assert abs(statistics.fmean(errors)) < 0.015
    assert abs(statistics.median(errors)) < 0.015


@pytest.mark.parametrize("outcome", [HELD, MISSED])
def test_a_hold_and_a_miss_are_both_tried_again(outcome):
    other = MISSED if outcome is HELD else HELD
    assert next_load(steps_of((754, outcome)), 754) == 754
    both = steps_of((754, outcome), (754, other))
    assert next_load(both, 754) == 754 and bounds(both) == (None, None)
    factor = 1.5 if outcome is HELD else 0.5
    assert next_load([*both, *steps_of((754, outcome))], 754) == 754 * factor


def test_a_rate_that_missed_twice_outweighs_a_higher_one_that_held():
    steps = steps_of((100, HELD), (200, MISSED), (200, MISSED), (210, HELD))
    assert bounds(steps) == (100, 200)


def test_refuses_to_search_below_a_share_of_the_first_rate():
    steps = search(lambda rate, number: MISSED, 1.0)
    assert bounds(steps)[0] is None
    assert min(step.rate for step in steps) == 1 / 32
    assert next_load(steps_of((5, Outcome.unproven)), 5) is None
    assert next_load(steps_of((1, MISSED), (1, MISSED)), 4, is_whole=True) is None


def test_a_phase_within_the_slo_held():
    assert verdict(measurement(second(), second()), SLO).outcome is HELD


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (measurement(second(), *[second(30.0)] * 2), "p99 30.0 ms above 20 ms"),
        (measurement(second(), second(errors={"HTTP 503: full": 4})), "4 errors: HTTP 503: full"),
        (measurement(second(), *[second(answered=500)] * 2), "requests piled up"),
        (measurement(second(30.0, 100), rate=100.0), "p50 30.0 ms above 20 ms"),
        (measurement(second(30.0, 400), rate=400.0), "p95 30.0 ms"),
        (measurement(second(60.0, service=40.0, lag=20.0)), "p99 60.0 ms above 20 ms"),
    ],
    ids=["latency", "errors", "pile-up", "few answers", "more answers", "slow server, late tool"],
)
def test_a_phase_misses(phase, reason):
    result = verdict(phase, SLO)
    assert result.outcome is MISSED
    assert reason in result.reason


def test_refuses_a_verdict_on_too_few_answers():
    result = verdict(measurement(second(count=400), rate=400.0), SLO)
    assert result.outcome is Outcome.unproven
    assert "400 answers; p99 needs 1,000" in result.reason


def test_the_tools_own_lateness_is_not_the_servers_miss():
    result = verdict(measurement(second(30.0, service=5.0, lag=25.0)), SLO)
    assert result.outcome is Outcome.tool
    assert "its own p99 lag was 25.0 ms" in result.reason


def test_a_busy_core_of_the_tool_is_not_the_servers_miss():
    busy = measurement(second(30.0, cpu_share=0.99), second(30.0, cpu_share=0.97))
    assert verdict(busy, SLO).outcome is Outcome.tool
    assert "98% of a core" in tool_limit(busy, None)


def test_a_closed_loop_piles_nothing_up():
    phase = measurement(second(answered=100, count=100, offered=1000), loop=Loop.closed)
    assert verdict(phase, SLO).outcome is Outcome.unproven


@pytest.mark.parametrize(("first", "most"), [(1, 1), (8, 1), (8, 7), (8, 100), (4, 13)])
def test_whole_rates_end_one_apart_or_four_percent(first, most):
    steps = []
    while (rate := next_load(steps, first, is_whole=True)) is not None:
        steps.append(Step(rate=rate, outcome=HELD if rate <= most else MISSED))
    held, missed = bounds(steps)
    assert all(step.rate == int(step.rate) for step in steps)
    assert held <= most < missed and (missed - held == 1 or missed <= held * 1.04)
    assert is_exact(steps, is_whole=True)


def test_a_comparison_goes_down_by_a_fifth_until_a_rate_holds_once():
    def rates(limit):
        steps = []
        while (rate := lower_load(steps, 100.0)) is not None:
            steps.append(Step(rate=rate, outcome=HELD if rate <= limit else MISSED))
        return [round(step.rate, 2) for step in steps]

    assert rates(100) == [100] and rates(70) == [100, 80, 64]
    assert rates(1) == [100, 80, 64, 51.2, 40.96]
    assert lower_load(steps_of((9, MISSED)), 9, is_whole=True) == 7


def test_a_percentile_needs_ten_values_beyond_it():
    needed = [samples_needed(percentile) for percentile in (50, 95, 99, 99.9, 99.99)]
    assert needed == [20, 200, 1000, 10_000, 100_000]


def test_refuses_a_percentile_of_too_few():
    assert [proven_percentile([1.0] * count, 50) for count in (19, 20)] == [None, 1.0]


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([4.0, 1.0, 3.0, 2.0], 50, 2.5), ([7.0], 99, 7.0), ([1.0, 2.0], 100, 2.0), ([], 50, None)],
)
def test_percentile_is_linear_between_values(values, percent, expected):
    assert percentile(values, percent) == expected


def test_kinds_of_errors_are_limited():
    phase = measurement(second(count=1, errors={f"error {n}": 1 for n in range(30)}))
    assert phase.failed == 30
    assert len(phase.errors) == MAX_ERROR_KINDS + 1
    assert phase.errors["other errors"] == 10


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (measurement(second(30.0, 30)), "p50 above 20 ms"),
        (measurement(second(30.0, 10)), None),
        (measurement(second(5.0), second(30.0, 900)), None),
    ],
    ids=["late", "too few", "most in time"],
)
def test_a_step_is_ended_once_its_median_is_above_the_slo(phase, reason):
    assert hopeless(phase, SLO, 1.0) == reason
