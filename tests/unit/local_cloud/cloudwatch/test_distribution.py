import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_cloud.cloudwatch.buffer import Distribution

pytestmark = pytest.mark.unit
values = st.lists(
    st.floats(min_value=0, max_value=1e9, allow_subnormal=False), min_size=1, max_size=300
)


def distribution(of):
    found = Distribution()
    for value in of:
        found.add(value)
    return found


def percentile(weighted, share):
    """The value at the nearest rank."""
    rank, seen = math.ceil(share * sum(count for _, count in weighted)), 0
    for value, count in weighted:
        seen += count
        if seen >= max(rank, 1):
            return value
    raise AssertionError("no such rank")


@given(values)
def test_count_sum_and_extremes_are_exact(of):
    weighted = distribution(of).weights()
    assert sum(count for _, count in weighted) == len(of)
    assert math.fsum(value * count for value, count in weighted) == pytest.approx(
        math.fsum(of), rel=1e-9, abs=1e-9
    )
    assert (weighted[0][0], weighted[-1][0]) == (min(of), max(of))


@given(values, st.sampled_from([0.5, 0.95, 0.99]))
def test_percentiles_are_within_a_bin(of, share):
    exact = percentile([(value, 1) for value in sorted(of)], share)
    assert percentile(distribution(of).weights(), share) == pytest.approx(
        exact, rel=0.0051, abs=1e-12
    )


def test_a_thousand_latencies_are_few_values():
    spread = distribution([10_000 + 17 * number for number in range(1000)])
    assert len(spread.weights()) < 250


def test_equal_values_are_one():
    assert distribution([1 / 3] * 1000).weights() == ((1 / 3, 1000),)
