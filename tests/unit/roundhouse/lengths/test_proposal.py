"""Proposed profiles, by property: the least time there is, and nothing refused that is served."""

from __future__ import annotations

import itertools
from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onboarding.manifest import ProfileRecord
from onboarding.model_spec import OptimizationProfileSpec
from roundhouse.lengths.costs import Parts, Table, bucket_costs, total
from roundhouse.lengths.options import PadAs
from roundhouse.lengths.padding import padding
from roundhouse.lengths.proposal import best_edges, free_steps, profiles_for, propose

pytestmark = pytest.mark.unit
PROFILES = (ProfileRecord(batch=(1, 8, 32), sequence=(8, 64, 128)),)
TABLE = Table({(rows, n): 1 + rows * n / 10 for rows in (1, 4) for n in (8, 128)})
PARTS = st.lists(
    st.builds(
        lambda rows, longest, count: Parts(
            rows=rows, longest=longest, count=count, useful=rows * longest * count
        ),
        *(st.sampled_from([1, 2, 4]), st.integers(1, 128), st.integers(1, 50)),
    ),
    min_size=1,
    max_size=12,
)


def cost(parts, steps):
    lengths = sorted(steps)
    return sum(
        part.count * TABLE.ms(part.rows, lengths[bisect_left(lengths, part.longest)])
        for part in parts
    )


@settings(deadline=None, derandomize=True, max_examples=60)
@given(PARTS, st.integers(1, 3), st.sampled_from([(), (16, 64), (8, 16, 32, 64)]))
def test_edges_are_the_best_of_all(parts, count, free):
    edges = best_edges(parts, free, PROFILES, TABLE, count)
    assert len(edges) <= count and edges[-1] == 128 and list(edges) == sorted(set(edges))
    every = (
        (*others, 128, *free)
        for size in range(count)
        for others in itertools.combinations(range(8, 128, 8), size)
    )
    assert cost(parts, {*edges, *free}) == pytest.approx(min(cost(parts, all_) for all_ in every))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(PARTS, st.integers(1, 4), st.sampled_from([PadAs.triton, PadAs.python]))
def test_proposals_take_less_time_and_serve_every_length_that_is_served(parts, most, pad_as):
    found = propose(parts, PROFILES, pad_as, TABLE, most_profiles=most, most_rows=32)
    if found is None:
        return
    before = total(bucket_costs(parts, padding(pad_as, PROFILES, 32), TABLE, PROFILES))
    assert total(found.costs).ms <= 0.99 * before.ms and len(found.profiles) <= most
    sequences = [profile.sequence for profile in found.profiles]
    assert sequences[0][0] <= 8 and sequences[-1][2] == 128
    assert all(after[0] == before[2] + 1 for before, after in itertools.pairwise(sequences))
    for profile in found.profiles:
        OptimizationProfileSpec(**profile.model_dump())


def test_lengths_just_above_a_power_of_two_get_a_profile():
    parts = [Parts(rows=1, longest=36, count=1000, useful=36_000)]
    found = propose(parts, PROFILES, PadAs.triton, TABLE, most_profiles=4, most_rows=32)
    assert [profile.sequence for profile in found.profiles] == [(8, 40, 40), (41, 128, 128)]
    assert [profile.batch for profile in found.profiles] == [(1, 12, 32), (1, 4, 32)]


def test_no_more_profiles_than_bring_a_hundredth():
    lengths = ((36, 1000), (70, 1))
    parts = [Parts(rows=1, longest=n, count=count, useful=n * count) for n, count in lengths]
    found = propose(parts, PROFILES, PadAs.triton, TABLE, most_profiles=9, most_rows=32)
    assert len(found.profiles) == 2


@pytest.mark.parametrize(("pad_as", "longest"), [(PadAs.triton, 64), (PadAs.longest, 36)])
def test_nothing_is_proposed_where_nothing_is_saved(pad_as, longest):
    parts = [Parts(rows=1, longest=longest, count=10, useful=10 * longest)]
    assert propose(parts, PROFILES, pad_as, TABLE, most_profiles=4, most_rows=32) is None


def test_steps_that_cost_no_profile_are_the_servers_own():
    assert free_steps(PROFILES, PadAs.triton, 32) == (8, 16, 32, 64, 128)
    assert free_steps(PROFILES, PadAs.python, 32) == (8, 16, 32, 48, 64, 96, 128)


def test_opt_batches_hold_about_the_tokens_of_the_present_one():
    assert [profile.batch for profile in profiles_for((16, 128), PROFILES)] == [
        (1, 32, 32),
        (1, 4, 32),
    ]
