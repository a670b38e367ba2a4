"""Latencies as histograms, exact to three digits, and silent where there are too few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundhouse.load_test.measurement import (
    MAX_ERROR_KINDS,
    Latencies,
    percentile,
    proven_percentile,
    samples_needed,
)
from tests.unit.roundhouse.load_test.phases import measurement, second


def histogram(*seconds: float) -> Latencies:
    latencies = Latencies()
    for value in seconds:
        latencies.record(value)
    return latencies


@given(st.lists(st.floats(1e-6, 100), min_size=1, max_size=200), st.sampled_from([50, 90, 95, 99]))
def test_percentiles_are_those_of_the_values_to_three_digits(seconds, percent):
    exact = percentile(seconds, percent) * 1000
    value = histogram(*seconds).percentile_of_any(percent)
    assert exact * 0.998 - 0.002 <= value <= exact * 1.002 + 0.002


def test_a_percentile_needs_ten_values_beyond_it():
    needed = [samples_needed(percentile) for percentile in (50, 95, 99, 99.9, 99.99)]
    assert needed == [20, 200, 1000, 10_000, 100_000]


def test_refuses_a_percentile_of_too_few():
    latencies = histogram(*[0.001] * 999)
    assert latencies.percentile(99) is None
    assert latencies.percentile(95) == pytest.approx(1, rel=2e-3)
    latencies.record(0.001)
    assert latencies.percentile(99) is not None
    assert Latencies().longest_ms is None
    assert proven_percentile([1.0] * 19, 50) is None


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([4.0, 1.0, 3.0, 2.0], 50, 2.5), ([7.0], 99, 7.0), ([1.0, 2.0], 100, 2.0), ([], 50, None)],
)
def test_percentile_is_linear_between_values(values, percent, expected):
    assert percentile(values, percent) == expected


def test_a_duration_above_the_longest_counts_as_the_longest():
    assert histogram(1e9).longest_ms == pytest.approx(600_000, rel=2e-3)


def test_kinds_of_errors_are_limited():
    phase = measurement(second(count=1, errors={f"error {n}": 1 for n in range(30)}))
    assert phase.failed == 30
    assert len(phase.errors) == MAX_ERROR_KINDS + 1
    assert phase.errors["other errors"] == 10


def test_the_newest_percentile_is_of_the_last_seconds_that_prove_one():
    slow = [second(5.0)] * 5 + [second(50.0)] * 3
    assert measurement(*slow).newest(95) == 50
    assert measurement(*slow[:6]).newest(50) == 5 and measurement(*slow[:2]).newest(50) is None
