"""Loading, answer and unloading models, with engines that tests hold still."""

from __future__ import annotations

import asyncio

import pytest

from container.server.types import Conflict, Unavailable, UnknownPath
from tests.unit.container.data_plane.models import ROWS


async def test_listing_has_pages(bench):
    for name in ("b", "c", "a"):
        await bench.models.load(name, bench.archive(name))
    first, token = bench.models.page(None, 2)
    rest, end = bench.models.page(token, 2)
    assert [entry.name for entry in (*first, *rest)] == ["a", "b", "c"] and end is None


async def test_unloading_waits_for_running_requests_and_then_closes_the_engine(bench):
    await bench.models.load("one", bench.archive("a"))
    (engine,) = bench.engines
    engine.go_on.clear()
    engine.running.clear()
    plane = bench.models.plane("one")
    answer = asyncio.ensure_future(bench.ask("one"))
    await asyncio.sleep(0)
    await asyncio.to_thread(engine.running.wait, 20)
    unloading = asyncio.ensure_future(bench.models.unload("one"))
    await asyncio.sleep(0)
    with pytest.raises(UnknownPath):
        bench.models.plane("one")
    with pytest.raises(Unavailable):
        await plane.submit(ROWS)
    with pytest.raises(Conflict, match="unloaded"):
        await bench.models.load("one", bench.archive("a2"))
    assert not unloading.done() and not engine.closed
    engine.go_on.set()
    await unloading
    assert (await answer)[0].tolist() == [[3]] and engine.closed
    assert b'model="one"' not in bench.metrics.exposition()


async def test_loading_does_not_stop_others(bench):
    await bench.models.load("one", bench.archive("a"))
    bench.may_open.clear()
    bench.opening.clear()
    loading = asyncio.ensure_future(bench.models.load("two", bench.archive("b")))
    await asyncio.to_thread(bench.opening.wait, 20)
    assert (await bench.ask("one"))[0].tolist() == [[3]]
    assert [entry.name for entry in bench.models.page(None, 9)[0]] == ["one"]
    with pytest.raises(UnknownPath):
        bench.models.plane("two")
    bench.may_open.set()
    await loading
    await bench.ask("two")


async def test_load_goes_on_when_its_client_leaves(bench):
    bench.may_open.clear()
    loading = asyncio.ensure_future(bench.models.load("one", bench.archive("a")))
    await asyncio.to_thread(bench.opening.wait, 20)
    loading.cancel()
    await asyncio.wait([loading])
    with pytest.raises(Conflict, match="being loaded"):
        await bench.models.load("one", bench.archive("b"))
    bench.may_open.set()
    while len(bench.models) == 0:
        await asyncio.sleep(0)
    await bench.ask("one")


async def test_unloaded_model_can_be_loaded_again(bench):
    url = bench.archive("a")
    await bench.models.load("one", url)
    await bench.models.unload("one")
    await bench.models.load("one", url)
    await bench.ask("one")
