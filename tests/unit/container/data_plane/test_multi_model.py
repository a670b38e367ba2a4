"""Loading, asking, refusing and unloading models, with engines that tests hold still."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from container.server.engines.engine import EngineOutOfMemory
from container.server.types import Conflict, OutOfMemory, RequestFault, Unavailable, UnknownPath
from tests.unit.container.data_plane.models import PARTS, ROWS


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


async def test_refuses_what_is_loaded_or_being_loaded(bench):
    url = bench.archive("a")
    bench.may_open.clear()
    loading = asyncio.ensure_future(bench.models.load("one", url))
    await asyncio.to_thread(bench.opening.wait, 20)
    with pytest.raises(Conflict, match="being loaded"):
        await bench.models.load("one", url)
    bench.may_open.set()
    await loading
    with pytest.raises(Conflict, match="loaded already"):
        await bench.models.load("one", url)


async def test_refuses_a_model_that_memory_is_too_short_for_and_loads_it_once_it_fits(bench):
    url = bench.archive("a", mib=101)
    with pytest.raises(OutOfMemory, match="takes 101 MiB and 100 MiB are left"):
        await bench.models.load("one", url)
    assert not bench.engines
    bench.free = 102
    await bench.models.load("one", url)


async def test_refuses_to_promise_the_same_memory_to_two_loads(bench):
    one, two = bench.archive("a", mib=60), bench.archive("b", mib=60)
    bench.may_open.clear()
    loading = asyncio.ensure_future(bench.models.load("one", one))
    await asyncio.to_thread(bench.opening.wait, 20)
    with pytest.raises(OutOfMemory, match="takes 60 MiB and 40 MiB are left"):
        await bench.models.load("two", two)
    bench.may_open.set()
    await loading


async def test_memory_that_cannot_be_read_refuses_nothing(bench):
    bench.free = None
    await bench.models.load("one", bench.archive("a", mib=1e9))


class Panic(BaseException):
    """What a library of Rust raises."""


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "fault",
    [
        MemoryError(),
        EngineOutOfMemory("the arena is full"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        RuntimeError("can't start new thread"),
        Panic("ThreadPoolBuildError { kind: IOError(Os { code: 11, kind: WouldBlock }) }"),
    ],
    ids=lambda fault: type(fault).__name__,
)
async def test_lack_of_memory_in_any_part_of_a_load_leaves_the_server_as_it_was(bench, part, fault):
    await bench.models.load("other", bench.archive("b"))
    url, bench.faults[part] = bench.archive("a"), fault
    with pytest.raises(OutOfMemory, match="'one' does not fit the memory") as raised:
        await bench.models.load("one", url)
    assert raised.value.status == 507 and len(bench.models) == 1
    assert all(engine.closed for engine in bench.engines[1:])
    assert (await bench.ask("other"))[0].tolist() == [[3]]
    bench.faults.clear()
    await bench.models.load("one", url)
    await bench.ask("one")
    bench.log.close()
    assert len(bench.lines) == 1 and b"load_out_of_memory" in bench.lines[0]


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("tokenizer", r"^Refused: the tokenizer cannot be loaded \(not JSON\); build the engine"),
        ("engine", "^The engine .* cannot be loaded: not JSON$"),
        ("warm-up", "^The engine .* cannot be loaded: not JSON$"),
    ],
)
async def test_refuses_archives_that_do_not_load_and_forgets_them(bench, part, sentence):
    url, bench.faults[part] = bench.archive("a"), Panic("not JSON\nat all")
    with pytest.raises(RequestFault, match=sentence) as raised:
        await bench.models.load("one", url)
    assert raised.value.status == 400 and all(engine.closed for engine in bench.engines)
    bench.faults.clear()
    await bench.models.load("one", url)
    bench.log.close()
    assert len(bench.lines) == 1


async def test_refuses_archives_that_are_not_ours(bench):
    with pytest.raises(RequestFault, match="Refused: it is foreign") as raised:
        await bench.models.load("one", bench.archive("refused"))
    assert raised.value.status == 400 and len(bench.models) == 0


@pytest.mark.parametrize("url", ["", "relative", "/does/not/exist", "s3://bucket/key"])
async def test_refuses_places_that_hold_no_archive(bench, url):
    with pytest.raises(RequestFault, match="must be the directory"):
        await bench.models.load("one", url)


async def test_refuses_models_that_are_not_loaded(bench):
    for act in (bench.models.entry, bench.models.plane):
        with pytest.raises(UnknownPath, match="'one' is not loaded"):
            act("one")
    with pytest.raises(UnknownPath):
        await bench.models.unload("one")
