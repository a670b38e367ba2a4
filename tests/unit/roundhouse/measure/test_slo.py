"""Verdicts on phases, and the search for the highest rate that holds."""

from __future__ import annotations

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
    verdict,
)
from tests.unit.roundhouse.measure.phases import (
    STREAM_SLO,
    measurement,
    second,
    stream_answers,
    stream_measurement,
)

HELD, MISSED, UNPROVEN, TOOL = Outcome.held, Outcome.missed, Outcome.unproven, Outcome.tool
SLO = engine_slo(20)


def search(outcome, first, next_load=next_load, **changes):
    """Run a whole search; `outcome` takes each rate and the number of steps before."""
    steps = []
    while (rate := next_load(steps, first, **changes)) is not None:
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
    assert next_load(steps_of((5, UNPROVEN)), 5) is None
    assert next_load(steps_of((1, MISSED), (1, MISSED)), 4, is_whole=True) is None


@pytest.mark.parametrize(("first", "most"), [(1, 1), (8, 1), (8, 7), (8, 100), (4, 13)])
def test_whole_rates_end_one_apart_or_four_percent(first, most):
    steps = search(lambda rate, n: HELD if rate <= most else MISSED, first, is_whole=True)
    held, missed = bounds(steps)
    assert all(step.rate == int(step.rate) for step in steps)
    assert held <= most < missed and (missed - held == 1 or missed <= held * 1.04)
    assert is_exact(steps, is_whole=True)


@pytest.mark.parametrize(
    ("limit", "rates"), [(100, [100]), (70, [100, 80, 64]), (1, [100, 80, 64, 51.2, 40.96])]
)
def test_a_comparison_goes_down_by_a_fifth_until_a_rate_holds_once(limit, rates):
    steps = search(lambda rate, n: HELD if rate <= limit else MISSED, 100.0, lower_load)
    assert [round(step.rate, 2) for step in steps] == rates
    assert lower_load(steps_of((9, MISSED)), 9, is_whole=True) == 7


BUSY = stream_measurement(*stream_answers(200, late=20))
BUSY.seconds_seen[0].cpu_share = 0.99
CASES = [
    (SLO, measurement(second(), second()), HELD, "p99 5.00 ms within 20 ms"),
    (SLO, measurement(second(), *[second(30.0)] * 2), MISSED, "p99 30.0 ms above 20 ms"),
    (SLO, measurement(second(), second(errors={"HTTP 503: x": 4})), MISSED, "4 errors: HTTP 503"),
    (SLO, measurement(second(), *[second(answered=500)] * 2), MISSED, "requests piled up"),
    (SLO, measurement(second(30.0, 100), rate=100.0), MISSED, "p50 30.0 ms above 20 ms"),
    (SLO, measurement(second(30.0, 400), rate=400.0), MISSED, "p95 30.0 ms"),
    (SLO, measurement(second(60.0, service=40.0, lag=20.0)), MISSED, "p99 60.0 ms above 20 ms"),
    (SLO, measurement(second(count=400), rate=400.0), UNPROVEN, "400 answers; p99 needs 1,000"),
    (
        SLO,
        measurement(second(answered=100, count=100, offered=1000), loop=Loop.closed),
        UNPROVEN,
        "100 answers",
    ),
    (SLO, measurement(second(30.0, service=5.0, lag=25.0)), TOOL, "its own p99 lag was 25.0 ms"),
    (SLO, measurement(second(30.0, cpu_share=0.98)), TOOL, "98% of a core"),
    (STREAM_SLO, stream_measurement(*stream_answers(200, late=9)), HELD, "ITL p95 10.0 ms within"),
    (
        STREAM_SLO,
        stream_measurement(*stream_answers(200, late=20)),
        MISSED,
        "TTFT p95 400 ms above 300 ms",
    ),
    (
        STREAM_SLO,
        stream_measurement(*stream_answers(200, gap=0.07)),
        MISSED,
        "ITL p95 70.0 ms above 60 ms",
    ),
    (
        STREAM_SLO,
        stream_measurement(*stream_answers(30, ttft=0.5)),
        MISSED,
        "TTFT p50 500 ms above 300 ms",
    ),
    (STREAM_SLO, stream_measurement(*stream_answers(200), errors=1), MISSED, "1 error: HTTP 503"),
    (
        STREAM_SLO,
        stream_measurement(*stream_answers(150, late=20)),
        UNPROVEN,
        "150 answers; p95 needs 200",
    ),
    (STREAM_SLO, BUSY, TOOL, "99% of a core"),
]


@pytest.mark.parametrize(("slo", "phase", "outcome", "reason"), CASES, ids=lambda v: str(v)[:24])
def test_a_phase_has_the_outcome_and_the_reason_of_its_slo(slo, phase, outcome, reason):
    found = verdict(phase, slo)
    assert (found.outcome, reason in found.reason) == (outcome, True), found


@pytest.mark.parametrize(
    ("phase", "slo", "slos", "reason"),
    [
        (measurement(second(30.0, 30)), SLO, 1.0, "p50 above 20 ms"),
        (measurement(second(30.0, 10)), SLO, 1.0, None),
        (measurement(second(5.0), second(30.0, 900)), SLO, 1.0, None),
        (stream_measurement(*stream_answers(20, ttft=0.7)), STREAM_SLO, 2, "TTFT p50 above 600 ms"),
        (stream_measurement(*stream_answers(20, gap=0.13)), STREAM_SLO, 2, "ITL p50 above 120 ms"),
        (stream_measurement(*stream_answers(20, ttft=0.5)), STREAM_SLO, 2, None),
    ],
)
def test_a_step_is_ended_once_its_median_is_far_above_the_slo(phase, slo, slos, reason):
    assert hopeless(phase, slo, slos) == reason


def test_a_percentile_is_linear_and_needs_ten_values_beyond_it():
    needed = [samples_needed(percent) for percent in (50, 95, 99, 99.9, 99.99)]
    assert needed == [20, 200, 1000, 10_000, 100_000]
    assert [proven_percentile([1.0] * count, 50) for count in (19, 20)] == [None, 1.0]
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5 and percentile([], 50) is None


def test_kinds_of_errors_are_limited():
    phase = measurement(second(count=1, errors={f"error {n}": 1 for n in range(30)}))
    assert phase.failed == 30
    assert len(phase.errors) == MAX_ERROR_KINDS + 1
    assert phase.errors["other errors"] == 10
