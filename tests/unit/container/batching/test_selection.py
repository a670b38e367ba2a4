"""The rows of a batch: within the limits, with the row that is next, at the least cost."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.server.batching.selection import (
    BatchLimits,
    least_window,
    row_edges,
    select_rows,
    total_rows,
)
from container.server.engines.engine import BucketCosts, Costs, LinearCosts

LIMITS = BatchLimits(max_rows=32, max_tokens=16384)
STEPPED = BucketCosts(
    rows=(1, 4, 32),
    lengths=(16, 32, 64, 128),
    measured={
        (rows, length): 0.1 + rows * length / 1000
        for rows in (1, 4, 32)
        for length in (16, 32, 64, 128)
    },
)
WAITING = st.dictionaries(st.integers(1, 200), st.integers(1, 40), min_size=1, max_size=40)
COSTS = st.sampled_from(
    [LinearCosts(), LinearCosts(fixed_seconds=0), LinearCosts(fixed_seconds=50), STEPPED]
)


def selection(
    waiting: dict[int, int], head: int, *, limits: BatchLimits = LIMITS, costs: Costs | None = None
) -> dict[int, int]:
    """Rows by length of the batch around the head's length."""
    costs = LinearCosts() if costs is None else costs
    lengths = sorted(waiting)
    edges = row_edges(costs, max_rows=limits.max_rows, longest=128)
    return dict(
        select_rows(
            lengths,
            lengths.index(head),
            waiting.__getitem__,
            limits=limits,
            costs=costs,
            edges=edges,
        )
    )


@settings(max_examples=500, deadline=None)
@given(WAITING, st.integers(0, 39), st.integers(1, 40), st.integers(1, 4000), COSTS)
def test_choice_holds_the_head_within_every_limit(waiting, index, max_rows, max_tokens, costs):
    lengths = sorted(waiting)
    head = lengths[index % len(lengths)]
    limits = BatchLimits(max_rows=max_rows, max_tokens=max_tokens)
    counted: Counter[int] = Counter()

    def count(length: int) -> int:
        counted[length] += 1
        return waiting[length]

    edges = row_edges(costs, max_rows=max_rows, longest=128)
    picks = select_rows(
        lengths, lengths.index(head), count, limits=limits, costs=costs, edges=edges
    )
    assert all(low.length < high.length for low, high in pairwise(picks))
    assert all(0 < pick.rows <= waiting[pick.length] for pick in picks)
    assert head in dict(picks)
    assert total_rows(picks) <= max_rows
    assert total_rows(picks) == 1 or total_rows(picks) * picks[-1].length <= max_tokens
    between = [length for length in lengths if picks[0].length < length < picks[-1].length]
    assert all(dict(picks)[length] == waiting[length] for length in between)
    assert sum(counted.values()) <= max_rows


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from([8, 16, 32, 64, 128]), st.integers(1, 6), min_size=1),
    st.integers(0, 4),
    COSTS,
)
def test_choice_is_part_of_the_cheapest_way_to_run_all(waiting, index, costs):
    """As long as all fit one batch: no set of cuts between lengths answers all rows sooner."""
    lengths = sorted(waiting)
    head = lengths[index % len(lengths)]
    limits = BatchLimits(max_rows=32, max_tokens=10**6)
    picks = select_rows(
        lengths, lengths.index(head), waiting.__getitem__, limits=limits, costs=costs
    )
    low, high = lengths.index(picks[0].length), lengths.index(picks[-1].length) + 1
    with_choice = least(lengths[:low], waiting, costs) + seconds(lengths[low:high], waiting, costs)
    assert with_choice + least(lengths[high:], waiting, costs) == pytest.approx(
        least(lengths, waiting, costs)
    )


def seconds(lengths: list[int], waiting: dict[int, int], costs: Costs) -> float:
    return costs.seconds(sum(waiting[length] for length in lengths), lengths[-1])


def least(lengths: list[int], waiting: dict[int, int], costs: Costs) -> float:
    """The least time in which batches of neighbouring lengths run all, by trying every way."""
    if not lengths:
        return 0.0
    return min(
        least(lengths[:start], waiting, costs) + seconds(lengths[start:], waiting, costs)
        for start in range(len(lengths))
    )


FEW = BatchLimits(max_rows=4, max_tokens=999)
DEAR = LinearCosts(fixed_seconds=1000)
BUCKETS_OF_16 = BucketCosts(
    rows=(1, 4, 32), lengths=(16,), measured={(1, 16): 1, (4, 16): 1, (32, 16): 9}
)


@pytest.mark.parametrize(
    ("waiting", "head", "options", "picks"),
    [
        pytest.param({8: 31, 128: 1}, 128, {}, {128: 1}, id="long row alone"),
        pytest.param({8: 31, 128: 1}, 8, {}, {8: 31}, id="short rows alone"),
        pytest.param({8: 31, 128: 1}, 128, {"costs": DEAR}, {8: 31, 128: 1}, id="cheaper together"),
        pytest.param({7: 3, 8: 4, 9: 2}, 8, {}, {7: 3, 8: 4, 9: 2}, id="neighbours"),
        pytest.param({7: 3, 8: 3, 10: 3}, 8, {"limits": FEW}, {7: 1, 8: 3}, id="nearer below"),
        pytest.param({4: 3, 8: 1, 9: 3}, 8, {"limits": FEW}, {8: 1, 9: 3}, id="nearer above"),
        pytest.param({4: 3, 8: 3, 10: 3}, 8, {"limits": FEW}, {4: 1, 8: 3}, id="all are padded"),
        pytest.param(
            {50: 3, 60: 2},
            60,
            {"limits": BatchLimits(max_rows=8, max_tokens=40)},
            {60: 1},
            id="longer than all tokens",
        ),
        pytest.param({16: 5}, 16, {"costs": STEPPED}, {16: 4}, id="fills the smaller bucket"),
        pytest.param({16: 31}, 16, {"costs": STEPPED}, {16: 31}, id="larger bucket is cheaper"),
    ],
)
def test_batch_of_waiting_rows(waiting, head, options, picks):
    assert selection(waiting, head, **options) == picks


@pytest.mark.parametrize(
    ("waiting", "head", "picks"),
    [
        ({9: 1, 10: 1, 11: 5}, 10, {9: 1, 10: 1, 11: 2}),
        ({9: 5, 10: 1}, 10, {9: 3, 10: 1}),
        ({9: 1, 10: 5}, 9, {9: 1, 10: 3}),
        ({10: 6}, 10, {10: 4}),
    ],
)
def test_cut_to_a_bucket_drops_the_longest_then_the_shortest_then_the_newest(waiting, head, picks):
    assert selection(waiting, head, costs=BUCKETS_OF_16) == picks


@pytest.mark.parametrize(("fixed_seconds", "rows"), [(8, 5), (1e6, 30)])
def test_window_is_a_few_of_the_batches_that_run_nearly_best(fixed_seconds, rows):
    costs = LinearCosts(fixed_seconds=fixed_seconds, seconds_per_token=1)
    assert least_window(costs, max_rows=32, length=16) == 4 * rows
