"""Loading, asking and unloading models, with engines that tests hold still."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from container.archive import ArchiveRefused, EngineArchive
from container.server.batching.batcher import Batcher, Limits
from container.server.batching.costs import LinearCosts
from container.server.engines.engine import EngineOutOfMemory
from container.server.engines.rows import Tokens
from container.server.serving.data_plane import DataPlane
from container.server.serving.failure_log import FailureLog
from container.server.serving.multi_model import Entry, Models, Opened
from container.server.serving.served_model import signature_of
from container.server.types import Conflict, OutOfMemory, RequestFault, Unavailable, UnknownPath
from tests.fixtures.tiny_embedder.archive import write_archive

ROWS = [Tokens(np.arange(3, dtype=np.int32))]


class Engine:
    slots, max_rows, sequence_buckets = 1, 8, None

    def __init__(self) -> None:
        self.go_on, self.running, self.closed = threading.Event(), threading.Event(), False
        self.go_on.set()

    def prepare(self, rows):
        return list(rows)

    def run(self, prepared, slot):
        self.running.set()
        self.go_on.wait(20)
        assert not self.closed
        return (np.array([[len(row)] for row in prepared], np.float32),)

    def warm_up(self):
        self.run(ROWS, 0)
        return LinearCosts()

    def close(self):
        self.closed = True


class Bench:
    """Models whose engines, memory and faults the test has in its hands."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.engines: list[Engine] = []
        self.free: float | None = 100.0
        self.fault: Exception | None = None
        self.opening, self.may_open = threading.Event(), threading.Event()
        self.may_open.set()
        self.lines: list[bytes] = []
        self.gone: list[str] = []
        self.log = FailureLog(self.lines.append)
        self.models = Models(
            verify=self.verify,
            open_engine=self.open,
            plane=lambda archive: DataPlane(
                signature=signature_of(archive.manifest), encoder=None, max_request_rows=9, deadline_seconds=20
            ),
            backend=self.backend,
            free_mib=lambda: self.free,
            log=self.log,
            unloaded=self.gone.append,
        )

    def archive(self, name: str, mib: float = 10.0) -> str:
        write_archive(self.root / name, host_memory_mib=mib)
        return str(self.root / name)

    def verify(self, root: Path) -> EngineArchive:
        if "refused" in root.name:
            raise ArchiveRefused("Refused: it is foreign.")
        from onboarding.manifest import Manifest

        return EngineArchive(root=root, manifest=Manifest.from_bytes((root / "manifest.json").read_bytes()))

    def open(self, archive: EngineArchive) -> Engine:
        self.opening.set()
        self.may_open.wait(20)
        if self.fault is not None:
            raise self.fault
        self.engines.append(Engine())
        return self.engines[-1]

    def backend(self, name: str, opened: Opened) -> Batcher:
        return Batcher(engine=opened.engine, probe=ROWS, limits=Limits(max_tokens=100, queue_rows=50), costs=opened.costs)

    async def ask(self, name: str) -> Any:
        return await (await self.models.plane(name).submit(ROWS))


@pytest.fixture
def tried(tmp_path):
    def run(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> Bench:
        bench = Bench(tmp_path)

        async def whole() -> None:
            try:
                await asyncio.wait_for(test(bench), 30)
            finally:
                await bench.models.close()
                bench.log.close()

        asyncio.run(whole())
        return bench

    return run


def test_loaded_model_is_listed_described_and_answers(tried):
    async def test(bench: Bench) -> None:
        url = bench.archive("a")
        await bench.models.load("one", url)
        assert bench.models.listed(None, 10) == ([Entry(name="one", url=url)], None)
        assert bench.models.described("one") == Entry(name="one", url=url)
        assert bench.models.plane("one").ready and len(bench.models) == 1
        assert (await bench.ask("one"))[0].tolist() == [[3]]

    tried(test)


def test_listing_has_pages(tried):
    async def test(bench: Bench) -> None:
        for name in ("b", "c", "a"):
            await bench.models.load(name, bench.archive(name))
        first, token = bench.models.listed(None, 2)
        rest, end = bench.models.listed(token, 2)
        assert [entry.name for entry in (*first, *rest)] == ["a", "b", "c"] and end is None

    tried(test)


def test_unloading_waits_for_running_requests_and_then_closes_the_engine(tried):
    async def test(bench: Bench) -> None:
        await bench.models.load("one", bench.archive("a"))
        (engine,) = bench.engines
        engine.go_on.clear()
        engine.running.clear()
        plane = bench.models.plane("one")
        asking = asyncio.ensure_future(bench.ask("one"))
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
        assert (await asking)[0].tolist() == [[3]] and engine.closed
        assert bench.gone == ["one"]

    tried(test)


def test_unloaded_model_can_be_loaded_again(tried):
    async def test(bench: Bench) -> None:
        url = bench.archive("a")
        await bench.models.load("one", url)
        await bench.models.unload("one")
        await bench.models.load("one", url)
        await bench.ask("one")

    tried(test)


def test_loading_does_not_stop_others(tried):
    async def test(bench: Bench) -> None:
        await bench.models.load("one", bench.archive("a"))
        bench.may_open.clear()
        bench.opening.clear()
        loading = asyncio.ensure_future(bench.models.load("two", bench.archive("b")))
        await asyncio.to_thread(bench.opening.wait, 20)
        assert (await bench.ask("one"))[0].tolist() == [[3]]
        assert [entry.name for entry in bench.models.listed(None, 9)[0]] == ["one"]
        with pytest.raises(UnknownPath):
            bench.models.plane("two")
        bench.may_open.set()
        await loading
        await bench.ask("two")

    tried(test)


def test_load_goes_on_when_its_client_leaves(tried):
    async def test(bench: Bench) -> None:
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

    tried(test)


def test_refuses_what_is_loaded_or_being_loaded(tried):
    async def test(bench: Bench) -> None:
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

    tried(test)


def test_refuses_a_model_that_memory_is_too_short_for_and_loads_it_once_there_is_room(tried):
    async def test(bench: Bench) -> None:
        url = bench.archive("a", mib=101)
        with pytest.raises(OutOfMemory, match="takes 101 MiB and 100 MiB are left"):
            await bench.models.load("one", url)
        assert not bench.engines
        bench.free = 102
        await bench.models.load("one", url)

    tried(test)


def test_refuses_to_promise_the_same_memory_to_two_loads(tried):
    async def test(bench: Bench) -> None:
        one, two = bench.archive("a", mib=60), bench.archive("b", mib=60)
        bench.may_open.clear()
        loading = asyncio.ensure_future(bench.models.load("one", one))
        await asyncio.to_thread(bench.opening.wait, 20)
        with pytest.raises(OutOfMemory, match="takes 60 MiB and 40 MiB are left"):
            await bench.models.load("two", two)
        bench.may_open.set()
        await loading

    tried(test)


def test_memory_that_cannot_be_read_refuses_nothing(tried):
    async def test(bench: Bench) -> None:
        bench.free = None
        await bench.models.load("one", bench.archive("a", mib=1e9))

    tried(test)


@pytest.mark.parametrize(
    ("fault", "refusal"),
    [
        (EngineOutOfMemory("bad_alloc"), OutOfMemory),
        (MemoryError(), OutOfMemory),
        (RuntimeError("not a network\nat all"), RequestFault),
    ],
)
def test_refuses_engines_that_do_not_load_and_forgets_them(tried, fault, refusal):
    async def test(bench: Bench) -> None:
        bench.fault = fault
        url = bench.archive("a")
        with pytest.raises(refusal) as found:
            await bench.models.load("one", url)
        assert type(found.value) is refusal and "\n" not in str(found.value)
        bench.fault = None
        await bench.models.load("one", url)

    assert len(tried(test).lines) == 1


def test_refuses_archives_that_are_not_ours(tried):
    async def test(bench: Bench) -> None:
        with pytest.raises(RequestFault, match="Refused: it is foreign") as found:
            await bench.models.load("one", bench.archive("refused"))
        assert found.value.status == 400 and len(bench.models) == 0

    tried(test)


@pytest.mark.parametrize("url", ["", "relative", "/does/not/exist", "s3://bucket/key"])
def test_refuses_places_that_hold_no_archive(tried, url):
    async def test(bench: Bench) -> None:
        with pytest.raises(RequestFault, match="must be the directory"):
            await bench.models.load("one", url)

    tried(test)


def test_refuses_models_that_are_not_loaded(tried):
    async def test(bench: Bench) -> None:
        for act in (bench.models.described, bench.models.plane):
            with pytest.raises(UnknownPath, match="'one' is not loaded"):
                act("one")
        with pytest.raises(UnknownPath):
            await bench.models.unload("one")

    tried(test)
