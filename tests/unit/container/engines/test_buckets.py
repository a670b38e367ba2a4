"""Sizes between a profile's own.

Few, none that a profile refuses, and each batch in the smallest that takes it.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.server.engines.buckets import MOST, Bucket, Buckets, bucket_costs, ladder
from onboarding.manifest import ProfileRecord


def profile(batch, sequence=None):
    return ProfileRecord(batch=batch, sequence=sequence)


def sizes(buckets):
    return {(each.rows, each.tokens) for each in buckets.sizes}


def ranges(most):
    return st.lists(st.integers(1, most), min_size=3, max_size=3).map(
        lambda three: tuple(sorted(three))
    )


profiles = st.lists(st.builds(profile, ranges(128), ranges(512)), min_size=1, max_size=4)


def test_ladder_has_the_profiles_own_sizes_and_rungs_between():
    found = ladder([profile((1, 5, 16), (16, 100, 200))], max_rows=16)
    assert sorted({rows for rows, _ in sizes(found)}) == [1, 2, 4, 5, 8, 16]
    assert found.sequences == (16, 32, 48, 64, 96, 100, 128, 192, 200)
    assert len(found.sizes) == 6 * 9


def test_ladder_gets_coarser_where_there_would_be_too_many():
    fine = ladder([profile((1, 8, 16), (16, 64, 128))], max_rows=16)
    coarse = ladder([profile((1, 8, 64), (1, 128, 512))], max_rows=64)
    assert {48, 96} <= set(fine.sequences)
    assert not {48, 96} & set(coarse.sequences) and {16, 64, 128, 256, 512} <= set(coarse.sequences)


def test_ladder_without_a_sequence_has_batches_alone():
    found = ladder([profile((1, 4, 8))], max_rows=8)
    assert sizes(found) == {(1, None), (2, None), (4, None), (8, None)} and found.sequences is None


def test_ladder_ends_at_the_most_rows_that_are_served():
    assert ladder([profile((1, 8, 32), (8, 8, 8))], max_rows=20).max_rows == 20


@given(profiles, st.integers(1, 128))
def test_every_bucket_is_within_a_profile_and_every_profile_reaches_its_end(found, most):
    usable = [each for each in found if each.batch[0] <= most]
    if not usable:
        return
    buckets = ladder(usable, max_rows=most)
    assert len(buckets.sizes) <= max(MOST, 9 * len(usable))
    for rows, tokens in sizes(buckets):
        assert any(
            each.batch[0] <= rows <= each.batch[2]
            and each.sequence[0] <= tokens <= each.sequence[2]
            for each in usable
        )
    for each in usable:
        assert (min(each.batch[2], most), each.sequence[2]) in sizes(buckets)


@given(profiles, st.integers(1, 200), st.integers(1, 512))
def test_parts_take_every_row_in_order(found, rows, tokens):
    buckets = ladder(found, max_rows=128)
    if tokens > max(each.sequence[2] for each in found):
        with pytest.raises(ValueError, match="no optimization profile takes"):
            buckets.parts(rows, tokens)
        return
    parts = buckets.parts(rows, tokens)
    assert sum(count for count, _ in parts) == rows
    assert all(bucket.takes(count, tokens) for count, bucket in parts)
    assert all(bucket in buckets.sizes for _, bucket in parts)
    if any(each.takes(rows, tokens) for each in buckets.sizes):
        assert len(parts) == 1 and parts[0][1].cells == min(
            each.cells for each in buckets.sizes if each.takes(rows, tokens)
        )


def test_exact_parts_keep_the_length():
    buckets = ladder([profile((1, 4, 8), (2, 16, 64))], max_rows=8)
    assert buckets.exact_parts(3, 7) == ((3, Bucket(rows=4, tokens=7)),)
    assert buckets.exact_parts(11, 7) == (
        (8, Bucket(rows=8, tokens=7)),
        (3, Bucket(rows=4, tokens=7)),
    )


def test_costs_are_the_buckets_own_and_the_sum_of_parts():
    buckets = Buckets(
        [Bucket(rows=1, tokens=8), Bucket(rows=4, tokens=8), Bucket(rows=2, tokens=32)], []
    )
    seconds = {bucket: float(bucket.cells) for bucket in buckets.sizes}
    costs = bucket_costs(buckets, seconds)
    assert [costs.seconds(*size) for size in ((1, 5), (3, 8), (2, 9), (3, 30))] == [
        8.0,
        32.0,
        64.0,
        128.0,
    ]


def test_costs_without_a_sequence_ask_for_rows_alone():
    buckets = ladder([profile((1, 2, 4))], max_rows=4)
    assert (
        bucket_costs(buckets, {bucket: float(bucket.rows) for bucket in buckets.sizes}).seconds(
            3, 77
        )
        == 4.0
    )


def test_refuses_lengths_beyond_every_profile():
    buckets = ladder([profile((1, 4, 8), (2, 16, 64))], max_rows=8)
    with pytest.raises(ValueError, match="takes 65 tokens; allowed: 2 to 64"):
        buckets.parts(1, 65)
    with pytest.raises(ValueError, match="takes a length of 1; allowed: 2 to 64"):
        buckets.exact_parts(1, 1)


def test_refuses_sizes_of_which_none_is_left():
    with pytest.raises(ValueError, match="no size at which a batch could run"):
        ladder([profile((1, 4, 8))], max_rows=8).only(lambda bucket: bucket.rows > 8)
