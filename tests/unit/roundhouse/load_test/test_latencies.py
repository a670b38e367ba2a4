"""Durations as a histogram: exact to three digits, mergeable, and silent where there are too few."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundhouse.load_test.latencies import Latencies, enough, merged


def filled(*seconds: float) -> Latencies:
    result = Latencies()
    for each in seconds:
        result.record(each)
    return result


@given(st.lists(st.floats(1e-6, 100), min_size=1, max_size=200), st.sampled_from([50, 90, 95, 99]))
def test_percentiles_are_those_of_the_values_to_three_digits(seconds, percentile):
    """Give or take one rank: the library rounds a rank where others take the next one."""
    ordered, rank = sorted(seconds), math.ceil(percentile / 100 * len(seconds))
    low, high = ordered[max(rank - 2, 0)] * 1000, ordered[rank - 1] * 1000
    assert low * 0.998 - 0.002 <= filled(*seconds).unproven(percentile) <= high * 1.002 + 0.002


@given(st.lists(st.floats(1e-6, 100), max_size=50), st.lists(st.floats(1e-6, 100), max_size=50))
def test_parts_put_together_are_the_whole(left, right):
    whole, parts = (
        filled(*left, *right),
        merged([filled(*left).encoded(), filled(*right).encoded()]),
    )
    assert len(parts) == len(whole)
    assert parts.longest_ms == whole.longest_ms


def test_enough_is_ten_beyond_the_percentile():
    assert [enough(each) for each in (50, 95, 99, 99.9, 99.99)] == [20, 200, 1000, 10_000, 100_000]


def test_refuses_a_percentile_of_too_few():
    found = filled(*[0.001] * 999)
    assert found.milliseconds(99) is None
    assert found.milliseconds(95) == pytest.approx(1, rel=2e-3)
    found.record(0.001)
    assert found.milliseconds(99) is not None
    assert Latencies().longest_ms is None and Latencies().curve() == ()


def test_a_slow_answer_counts_for_the_requests_that_it_held_up():
    found = Latencies()
    found.record_corrected(1.0, 0.25)
    assert len(found) == 4
    assert found.mean_ms == pytest.approx(1000 * (1.0 + 0.75 + 0.5 + 0.25) / 4, rel=2e-3)


def test_a_fast_answer_held_up_nothing():
    found = Latencies()
    found.record_corrected(0.3, 0.25)
    assert len(found) == 1


def test_what_is_too_long_counts_as_the_longest():
    assert filled(1e9).longest_ms == pytest.approx(600_000, rel=2e-3)


def test_cleared_begins_anew():
    found = filled(1, 2)
    found.clear()
    assert len(found) == 0
