"""How much of a rate counts: held against a queue that is played out, request by request."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.capacity.engine import BEYOND, LEAST_COUNTED, USUAL_SHARE, bearable_load, counted_share

pytestmark = pytest.mark.unit

REQUESTS = 30_000
BATCHES, WAITS = st.integers(1, 256), st.floats(0, 1e6, allow_nan=False)


def longest_but_few(batch, load):
    """The latency, in runs of a batch, that one request in BEYOND exceeds.

    Poisson arrivals, every batch of one run's length.
    """
    chance, now = random.Random(batch), 0.0
    arrivals = [now := now + chance.expovariate(load * batch) for _ in range(REQUESTS)]
    latencies, free, place = [], 0.0, 0
    while place < REQUESTS:
        start, first = max(free, arrivals[place]), place
        while place < REQUESTS and place < first + batch and arrivals[place] <= start:
            place += 1
        free = start + 1
        latencies += [free - arrived for arrived in arrivals[first:place]]
    return sorted(latencies)[-REQUESTS // BEYOND]


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8, 32])
@pytest.mark.parametrize("waits", [1.0, 1.5, 2.0, 3.0, 6.0])
def test_usual_share_of_what_counts_keeps_the_slo(batch, waits):
    assert longest_but_few(batch, counted_share(batch, waits) * USUAL_SHARE) <= (waits + 1) * 1.02


@pytest.mark.parametrize(
    ("batch", "waits"), [(1, 1.5), (1, 2.0), (1, 3.0), (2, 1.5), (2, 2.0), (3, 1.5), (4, 1.2)]
)
def test_what_does_not_count_would_break_the_slo(batch, waits):
    assert LEAST_COUNTED < counted_share(batch, waits) < 1
    assert longest_but_few(batch, USUAL_SHARE) > waits + 1


def test_bearable_load_of_single_requests_by_hand():
    # e^(-3 theta) = 1 / 100: theta = 1.535; 1.535 / (e^1.535 - 1) = 0.4216.
    assert bearable_load(1, 3.0) == pytest.approx(0.4216, abs=1e-4)
    # A batch of 4 leaves 4 x (1.5 - 0.5) = 4 requests ahead: theta = 1.1513, 1.1513 / (e^1.1513 -
    # 1) = 0.5324.
    assert bearable_load(4, 1.5) == pytest.approx(0.5324, abs=1e-4)
    assert bearable_load(1, 0.0) == 0.0


@given(batch=st.integers(8, 256), waits=st.floats(1, 1e6))
def test_all_counts_from_batch_eight_on(batch, waits):
    assert counted_share(batch, waits) == 1


@given(batch=BATCHES, waits=WAITS, more=st.floats(0, 1e6), larger=st.integers(0, 64))
def test_more_time_to_wait_never_counts_for_less(batch, waits, more, larger):
    assert LEAST_COUNTED <= counted_share(batch, waits) <= counted_share(batch, waits + more) <= 1
    if waits >= 1:
        assert counted_share(batch, waits) <= counted_share(batch + larger, waits)
