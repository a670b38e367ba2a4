"""What batches cost, and the sizes between a profile's own: few, and the smallest for a batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.server.engines.buckets import MOST, Bucket, Buckets, bucket_costs, ladder
from onboarding.manifest import ProfileRecord


def profile(batch, sequence=None):
    return ProfileRecord(batch=batch, sequence=sequence)


def sizes(buckets):
    return {(bucket.rows, bucket.tokens) for bucket in buckets.sizes}


def ranges(most):
    return st.lists(st.integers(1, most), min_size=3, max_size=3).map(
        lambda three: tuple(sorted(three))
    )


PROFILES = st.lists(st.builds(profile, ranges(128), ranges(512)), min_size=1, max_size=4)


def test_ladder_has_the_profiles_own_sizes_and_rungs_between():
    buckets = ladder([profile((1, 5, 16), (16, 100, 200))], max_rows=16)
    assert sorted({rows for rows, _ in sizes(buckets)}) == [1, 2, 4, 5, 8, 16]
    assert buckets.sequences == (16, 32, 48, 64, 96, 100, 128, 192, 200)
    assert len(buckets.sizes) == 6 * 9


def test_ladder_gets_coarser_where_there_would_be_too_many():
    fine = ladder([profile((1, 8, 16), (16, 64, 128))], max_rows=16)
    coarse = ladder([profile((1, 8, 64), (1, 128, 512))], max_rows=64)
    assert {48, 96} <= set(fine.sequences)
    assert not {48, 96} & set(coarse.sequences) and {16, 64, 128, 256, 512} <= set(coarse.sequences)


@given(PROFILES, st.integers(1, 128))
def test_every_bucket_is_within_a_profile_and_every_profile_reaches_its_end(profiles, most):
    usable = [profile for profile in profiles if profile.batch[0] <= most]
    if not usable:
        return
    buckets = ladder(usable, max_rows=most)
    assert len(buckets.sizes) <= max(MOST, 9 * len(usable))
    for rows, tokens in sizes(buckets):
        assert any(
            profile.batch[0] <= rows <= profile.batch[2]
            and profile.sequence[0] <= tokens <= profile.sequence[2]
            for profile in usable
        )
    for profile in usable:
        assert (min(profile.batch[2], most), profile.sequence[2]) in sizes(buckets)


@given(PROFILES, st.integers(1, 200), st.integers(1, 512))
def test_parts_take_every_row_in_order(profiles, rows, tokens):
    buckets = ladder(profiles, max_rows=128)
    if tokens > max(profile.sequence[2] for profile in profiles):
        with pytest.raises(ValueError, match="no optimization profile takes"):
            buckets.parts(rows, tokens)
        return
    parts = buckets.parts(rows, tokens)
    assert sum(count for count, _ in parts) == rows
    assert all(bucket.takes(count, tokens) for count, bucket in parts)
    assert all(bucket in buckets.sizes for _, bucket in parts)
    if whole := [bucket.cells for bucket in buckets.sizes if bucket.takes(rows, tokens)]:
        assert len(parts) == 1 and parts[0][1].cells == min(whole)


def test_exact_parts_keep_the_length():
    buckets = ladder([profile((1, 4, 8), (2, 16, 64))], max_rows=8)
    assert buckets.exact_parts(3, 7) == ((3, Bucket(rows=4, tokens=7)),)
    assert buckets.exact_parts(11, 7) == (
        (8, Bucket(rows=8, tokens=7)),
        (3, Bucket(rows=4, tokens=7)),
    )


def test_costs_are_the_buckets_own_and_the_sum_of_parts():
    sizes = [Bucket(rows=rows, tokens=tokens) for rows, tokens in ((1, 8), (4, 8), (2, 32))]
    costs = bucket_costs(Buckets(sizes, []), {bucket: float(bucket.cells) for bucket in sizes})
    batches = ((1, 5), (3, 8), (2, 9), (3, 30))
    assert [costs.seconds(*batch) for batch in batches] == [8.0, 32.0, 64.0, 128.0]


def test_refuses_lengths_beyond_every_profile():
    buckets = ladder([profile((1, 4, 8), (2, 16, 64))], max_rows=8)
    with pytest.raises(ValueError, match="takes 65 tokens; allowed: 2 to 64"):
        buckets.parts(1, 65)
    with pytest.raises(ValueError, match="takes a length of 1; allowed: 2 to 64"):
        buckets.exact_parts(1, 1)


def test_refuses_sizes_of_which_none_is_left():
    with pytest.raises(ValueError, match="no size at which a batch could run"):
        ladder([profile((1, 4, 8))], max_rows=8).only(lambda bucket: bucket.rows > 8)
