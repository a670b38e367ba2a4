"""The search for the highest rate that holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roundhouse.load_test.judgement.saturation import (
    CLOSE_ENOUGH,
    MOST_STEPS,
    Saturation,
    Tried,
    bounds,
    next_rate,
)
from roundhouse.load_test.judgement.verdict import Outcome


def searched(judged, first):
    tried = []
    while (rate := next_rate(tried, first)) is not None:
        tried.append(Tried(rate=rate, outcome=judged(rate, tried)))
        assert len(tried) <= MOST_STEPS
    return tried


@given(st.floats(10, 1e5), st.floats(0.05, 1.5))
def test_the_search_ends_close_below_the_limit(limit, share):
    tried = searched(
        lambda rate, tried: Outcome.held if rate <= limit else Outcome.missed, limit * share
    )
    found = bounds(tried)
    assert found.found
    assert found.held <= limit < found.missed <= found.held * CLOSE_ENOUGH


def test_one_bad_moment_does_not_end_the_climb():
    tried = searched(
        lambda rate, tried: Outcome.missed if rate > 1000 or len(tried) == 2 else Outcome.held, 100
    )
    assert bounds(tried).held > 950


def test_a_rate_that_missed_twice_outweighs_a_higher_one_that_held():
    said = [(100, Outcome.held), (200, Outcome.missed), (200, Outcome.missed), (210, Outcome.held)]
    assert bounds([Tried(rate=rate, outcome=outcome) for rate, outcome in said]) == Saturation(
        held=100, missed=200
    )


def test_the_search_goes_down_where_the_first_rate_misses():
    tried = searched(lambda rate, tried: Outcome.held if rate <= 5 else Outcome.missed, 100)
    assert bounds(tried).held <= 5


def test_refuses_to_search_below_a_share_of_the_first_rate():
    tried = searched(lambda rate, tried: Outcome.missed, 1.0)
    assert bounds(tried).held is None
    assert min(each.rate for each in tried) == 1 / 32


def test_refuses_to_go_on_without_samples():
    assert next_rate([Tried(rate=5, outcome=Outcome.unproven)], 5) is None
