"""Which rows run together.

Within the limits, with the row whose turn it is, and never dearer than need be.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.server.batching.selection import (
    BatchLimits,
    Pick,
    least_window,
    row_edges,
    select_rows,
    total_rows,
    window_rows,
)
from container.server.engines.engine import BucketCosts, Costs, LinearCosts

ROOM = BatchLimits(max_rows=32, max_tokens=16384)
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


def chosen(
    waiting: dict[int, int], head: int, *, limits: BatchLimits = ROOM, costs: Costs | None = None
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
def test_choice_holds_the_head_within_every_limit(waiting, place, max_rows, max_tokens, costs):
    lengths = sorted(waiting)
    head = lengths[place % len(lengths)]
    limits = BatchLimits(max_rows=max_rows, max_tokens=max_tokens)
    looked_at: Counter[int] = Counter()

    def count(length: int) -> int:
        looked_at[length] += 1
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
    assert sum(looked_at.values()) <= max_rows


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from([8, 16, 32, 64, 128]), st.integers(1, 6), min_size=1),
    st.integers(0, 4),
    COSTS,
)
def test_choice_is_part_of_the_cheapest_way_to_run_all(waiting, place, costs):
    """As long as all fit one batch: no set of cuts between lengths answers all rows sooner."""
    lengths = sorted(waiting)
    head = lengths[place % len(lengths)]
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


def test_choice_leaves_short_rows_out_of_a_long_ones_batch():
    assert chosen({8: 31, 128: 1}, 128) == {128: 1}
    assert chosen({8: 31, 128: 1}, 8) == {8: 31}


def test_choice_takes_short_rows_along_where_that_is_cheaper():
    assert chosen({8: 31, 128: 1}, 128, costs=LinearCosts(fixed_seconds=1000)) == {8: 31, 128: 1}


def test_choice_takes_neighbours_along():
    assert chosen({7: 3, 8: 4, 9: 2}, 8) == {7: 3, 8: 4, 9: 2}


def test_choice_takes_the_nearer_neighbours_first():
    assert chosen({7: 3, 8: 3, 10: 3}, 8, limits=BatchLimits(max_rows=4, max_tokens=999)) == {
        7: 1,
        8: 3,
    }
    assert chosen({4: 3, 8: 1, 9: 3}, 8, limits=BatchLimits(max_rows=4, max_tokens=999)) == {
        8: 1,
        9: 3,
    }


def test_longer_neighbour_pads_every_row_that_is_there():
    assert chosen({4: 3, 8: 3, 10: 3}, 8, limits=BatchLimits(max_rows=4, max_tokens=999)) == {
        4: 1,
        8: 3,
    }


def test_full_lane_of_the_heads_length_is_the_batch():
    looked_at: list[int] = []

    def count(length: int) -> int:
        looked_at.append(length)
        return 40

    assert select_rows([7, 8, 9], 1, count, limits=ROOM, costs=LinearCosts()) == [Pick(8, 32)]
    assert looked_at == [8]


def test_row_longer_than_all_tokens_runs_alone():
    assert chosen({50: 3, 60: 2}, 60, limits=BatchLimits(max_rows=8, max_tokens=40)) == {60: 1}


def test_choice_does_not_start_a_larger_bucket_for_a_few_rows():
    """Five rows of one length: a bucket of 4 and one of 1 cost less than a bucket of 32."""
    assert chosen({16: 5}, 16, costs=STEPPED) == {16: 4}
    assert chosen({16: 31}, 16, costs=STEPPED) == {16: 31}


def test_cut_to_a_bucket_keeps_the_head():
    """The longest rows go first, then the shortest, then the newest of the head's length."""
    costs = BucketCosts(
        rows=(1, 4, 32), lengths=(16,), measured={(1, 16): 1, (4, 16): 1, (32, 16): 9}
    )
    assert chosen({9: 1, 10: 1, 11: 5}, 10, costs=costs) == {9: 1, 10: 1, 11: 2}
    assert chosen({9: 5, 10: 1}, 10, costs=costs) == {9: 3, 10: 1}
    assert chosen({9: 1, 10: 5}, 9, costs=costs) == {9: 1, 10: 3}
    assert chosen({10: 6}, 10, costs=costs) == {10: 4}


def test_row_edges_are_where_buckets_end():
    assert row_edges(STEPPED, max_rows=32, longest=64) == (1, 4)
    assert row_edges(LinearCosts(), max_rows=32, longest=64) == (1,)


def test_reach_is_a_few_of_the_batches_that_run_nearly_best():
    few, many = (
        LinearCosts(fixed_seconds=8, seconds_per_token=1),
        LinearCosts(fixed_seconds=1e6, seconds_per_token=1),
    )
    assert least_window(few, max_rows=32, length=16) == 4 * 5
    assert least_window(many, max_rows=32, length=16) == 4 * 30


def test_reach_is_a_third_of_a_long_queue():
    assert [window_rows(20, waiting) for waiting in (1, 62, 63, 300)] == [20, 20, 21, 100]


def test_window_leaves_out_lengths_with_no_row_within_reach():
    rows = {8: 0, 9: 2, 10: 0, 11: 1}
    limits, costs = (
        BatchLimits(max_rows=8, max_tokens=1000),
        LinearCosts(fixed_seconds=100, seconds_per_token=1),
    )
    assert select_rows([8, 9, 10, 11], 1, rows.__getitem__, limits=limits, costs=costs) == [
        Pick(9, 2),
        Pick(11, 1),
    ]
