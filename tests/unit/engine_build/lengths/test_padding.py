"""Bucket edges, by property: never worse than equal ones, and the best there are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_build.lengths.padding import best_edges, equal_edges, padded

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=80).map(np.array)
COUNTS = st.integers(1, 8)
MULTIPLES = st.sampled_from([1, 4, 8, 16])


def cost(lengths, edges):
    return int(padded(lengths, edges).sum())


@settings(deadline=None, derandomize=True)
@given(LENGTHS, COUNTS, MULTIPLES)
def test_buckets_are_never_worse_than_equal_ones(lengths, count, multiple):
    equal = equal_edges(int(lengths.max()), count, multiple=multiple)
    assert cost(lengths, best_edges(lengths, count, multiple=multiple)) <= cost(lengths, equal)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=20).map(np.array), st.integers(1, 4))
def test_buckets_are_the_best_of_all(lengths, count):
    longest = int(lengths.max())
    every = (
        (*others, longest)
        for size in range(count)
        for others in itertools.combinations(range(1, longest), size)
    )
    best = best_edges(lengths, count, multiple=1)
    assert cost(lengths, best) == min(cost(lengths, edges) for edges in every)


@settings(deadline=None, derandomize=True)
@given(LENGTHS, COUNTS, MULTIPLES)
def test_edges_hold_every_text_in_no_more_buckets_than_the_count(lengths, count, multiple):
    edges = best_edges(lengths, count, multiple=multiple)
    assert 1 <= len(edges) <= count and list(edges) == sorted(set(edges))
    assert all(edge % multiple == 0 for edge in edges)
    assert (padded(lengths, edges) >= lengths).all()
    assert edges[-1] - multiple < lengths.max() <= edges[-1]


@settings(deadline=None, derandomize=True)
@given(LENGTHS, COUNTS)
def test_more_buckets_never_pad_more(lengths, count):
    few, more = (cost(lengths, best_edges(lengths, buckets)) for buckets in (count, count + 1))
    assert more <= few


@pytest.mark.parametrize(
    ("count", "expected"), [(1, (100,)), (2, (10, 100)), (3, (9, 10, 100)), (9, (9, 10, 100))]
)
def test_edges_fall_where_the_texts_are(count, expected):
    assert best_edges(np.array([9, 9, 9, 10, 10, 10, 10, 100]), count, multiple=1) == expected
