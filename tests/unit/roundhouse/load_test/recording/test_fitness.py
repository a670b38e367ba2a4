"""Which load tests are measurements of a capacity."""

from __future__ import annotations

import dataclasses

import pytest

from roundhouse.load_test.recording.fitness import next_lower, unfit_hold, unfit_search
from tests.unit.roundhouse.load_test.seconds import loaded, measured, searched, second

pytestmark = pytest.mark.unit


def step(rate, **changes):
    return measured(second(0, **changes), rate=rate, name=f"step: {rate:g}")


def search(*phases):
    return searched(*phases)


FOUND = (step(1000.0), step(1030.0, milliseconds=40.0), step(1030.0, milliseconds=40.0))


def test_search_that_found_both_ends_is_a_measurement():
    assert unfit_search(search(*FOUND)) is None


def test_refuses_a_load_that_searched_for_nothing():
    assert "searched for no saturation point" in unfit_search(loaded(step(1000.0)))


def test_refuses_a_broken_off_search_whatever_it_found():
    assert (
        unfit_search(dataclasses.replace(search(*FOUND), broken_off=True))
        == "the load test was broken off"
    )


def test_refuses_a_search_in_which_nothing_held():
    assert unfit_search(search(*(step(1000.0, milliseconds=40.0),) * 2)) == "no rate held the SLO"


def test_refuses_a_search_that_met_no_end():
    assert "only that 1000 a second holds" in unfit_search(search(step(1000.0)))


def test_refuses_a_search_whose_end_is_the_tools_own():
    limited = [step(1030.0, milliseconds=40.0, cpu_share=1.0, service=b"")] * 2
    reason = unfit_search(search(step(1000.0), *limited))
    assert "only that 1000 a second holds" in reason and "tool's limit" in reason


def test_refuses_a_search_whose_chief_step_the_tool_took_part_in():
    busy = (step(1000.0, cpu_share=0.99), *FOUND[1:])
    assert "the load tool was part of what it measured" in unfit_search(search(*busy))


def held(phase, slo_ms=20.0):
    result = searched(phase, slo_ms=slo_ms)
    return dataclasses.replace(result, saturation=None)


def test_hold_within_the_slo_is_a_measurement():
    assert unfit_hold(held(step(1000.0))) is None


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (
            step(1000.0, milliseconds=40.0),
            "1000 a second were not held for 1 s (p99 40.0 ms above 20 ms)",
        ),
        (step(1000.0, faults={"HTTP 500": 3}), "3 faults: HTTP 500"),
        (step(100.0, count=100), "p99 needs 1,000"),
        (step(1000.0, cpu_share=0.99), "the load tool was part of what it measured"),
    ],
    ids=["too slow", "faults", "too few samples", "tool's limit"],
)
def test_refuses_a_rate_that_was_not_held(phase, said):
    assert said in unfit_hold(held(phase))


def test_refuses_a_broken_off_hold():
    assert (
        unfit_hold(dataclasses.replace(held(step(1000.0)), broken_off=True, phases=()))
        == "the load test was broken off"
    )


def test_next_rate_is_lower_by_the_searchs_accuracy():
    assert next_lower(104.0) == pytest.approx(100.0)
