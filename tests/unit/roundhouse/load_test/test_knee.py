"""The knee of servers on loopback: only what an open loop held counts."""

from __future__ import annotations

import asyncio

import pytest

from roundhouse.load_test import knee as module
from roundhouse.load_test import load_test as load_test_module
from roundhouse.load_test.knee import KneeSearch
from tests.unit.roundhouse.load_test.answering import Answer, serve
from tests.unit.roundhouse.load_test.phases import load_test


def search(url, slo_ms):
    test = load_test(url=url, warm_up=0.0, slo_ms=slo_ms, connections=64)
    return asyncio.run(KneeSearch(test=test).run())


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(load_test_module, "LEVEL_SECONDS", 0.5)
    monkeypatch.setattr(load_test_module, "LEVEL_USERS", (1, 4))
    monkeypatch.setattr(module, "LONGEST_HOLD_SECONDS", 2.0)


def test_a_rate_that_was_held_is_the_knee():
    with serve(lambda number: Answer(after_seconds=0.02)) as server:
        found = search(server.url, 500.0)
    assert found.rate is not None and found.errors == 0
    assert found.users is not None and found.p50_ms is not None and found.p50_ms >= 20


def test_a_server_slower_than_the_slo_holds_nothing_and_says_why():
    with serve(lambda number: Answer(after_seconds=0.1)) as server:
        found = search(server.url, 50.0)
    assert found.rate is None and found.users is None and "p95" in found.reason


def test_errors_end_the_search():
    with serve(lambda number: Answer(status=503 if number > 20 else 200)) as server:
        found = search(server.url, 500.0)
    assert found.rate is None and found.errors > 0 and "errors" in found.reason
