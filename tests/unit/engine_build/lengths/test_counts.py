"""Counting tokens: sums, truncation, refusals, and texts of any length."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from engine_build.captures.bodies import Body
from engine_build.lengths import counts as module
from engine_build.lengths.counts import Counts, TokenCounter, percentiles
from engine_build.lengths.requests import Request
from tests.unit.engine_build.tiny import WORDS, word_tokenizer

pytestmark = pytest.mark.unit


def request(*texts, data=b"{}"):
    return Request(texts=texts, body=Body(data=data, content_type="application/json"))


def counts(**changes):
    return Counts(**({"longest": 8, "truncates": True, "most_rows": 4, "splits": False} | changes))


def test_sums_are_those_of_all_requests():
    found = counts()
    found.add(request("a", "b"), [3, 5])
    found.add(request("a", "b"), [5, 4])
    found.add(request("c"), [8])
    assert found.parts == {(2, 5): [2, 17], (1, 8): [1, 8]}
    assert (found.requests, found.texts, found.tokens) == (3, 5, 25)
    assert not found.truncated_requests and not found.refused


def test_longer_texts_lose_what_is_cut():
    found = counts()
    found.add(request("a", "b"), [3, 20])
    found.add(request("c"), [8])
    assert (found.truncated_requests, found.truncated_texts, found.lost_tokens) == (1, 1, 12)
    assert found.parts == {(2, 8): [1, 11], (1, 8): [1, 8]} and found.tokens == 31


def test_requests_are_refused_that_servers_refuse():
    found = counts(truncates=False)
    found.add(request("a"), [9])
    found.add(request(*"abcde"), [1] * 5)
    assert not found.parts and not found.truncated_requests and not found.lost_tokens
    assert found.refused == {
        "a text of more than 8 tokens": 1,
        "more than the 4 texts of a batch": 1,
    }


def test_large_requests_are_split_where_the_server_splits_them():
    found = counts(splits=True)
    found.add(request(*"abcde"), [1, 2, 3, 4, 5])
    assert found.parts == {(4, 4): [1, 10], (1, 5): [1, 5]}
    assert all(part.body is None for part in found.sample)


@pytest.mark.parametrize("requests", [200, 2000])
def test_first_of_the_sample_are_not_the_first_of_a_file_that_is_sorted(requests):
    found = counts(longest=10_000)
    for length in range(1, requests + 1):
        found.add(request("a"), [length])
    sample = [part.lengths[0] for part in found.random_sample()]
    assert sorted(sample) == sorted(part.lengths[0] for part in found.sample)
    mean = sum(sample[:40]) / 40
    assert 0.6 < mean / (requests / 2) < 1.4, "within three standard errors"


def test_sample_is_bounded_and_of_the_whole_file():
    found = counts()
    for index in range(4000):
        found.add(request("a", data=b"x" * 10), [1 + index // 500])
    assert len(found.sample) == module.SAMPLED_PARTS
    by_length = Counter(part.lengths[0] for part in found.sample)
    assert set(by_length) == set(range(1, 9)) and min(by_length.values()) > 10


def test_large_bodies_are_not_kept():
    found = counts()
    found.add(request("a", data=b"x" * (module.LARGEST_SAMPLED_BODY + 1)), [3])
    assert found.sample[0].body is None and found.sample[0].lengths == (3,)


def test_percentiles_count_every_text():
    assert percentiles(Counter({4: 98, 100: 2})) == {
        "min": 4,
        "p1": 4,
        "p5": 4,
        "p25": 4,
        "p50": 4,
        "p75": 4,
        "p90": 4,
        "p95": 4,
        "p99": 100,
        "max": 100,
        "mean": 5.9,
    }
    assert percentiles(Counter()) == {}


def test_tokens_are_counted_whole_with_special_ones(monkeypatch):
    monkeypatch.setattr(module, "CHARACTERS_AT_ONCE", 50)
    counter, order = TokenCounter(word_tokenizer()), random.Random(1)
    texts = [" ".join(order.choices(WORDS, k=size)) for size in (1, 400, 3, 12, 90, 2)]
    requests = [request(*texts[:3]), request(*texts[3:5]), request(texts[5])]
    found = list(counter.count(requests))
    assert [item for item, _ in found] == requests
    assert [lengths for _, lengths in found] == [[3, 402, 5], [14, 92], [4]]
    assert counter.words, "real tokens fill the batches that are timed"


def test_pairs_are_counted_together(monkeypatch):
    whole = TokenCounter(word_tokenizer())._lengths([("the cat", "a dog sat")])
    monkeypatch.setattr(module, "CHARACTERS_AT_ONCE", 6)
    counter = TokenCounter(word_tokenizer())
    ((_, lengths),) = counter.count([request(("the cat", "a dog sat"))])
    assert abs(lengths[0] - whole[0]) <= 1
