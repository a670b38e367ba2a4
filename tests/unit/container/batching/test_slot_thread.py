"""The real thread of a slot, and a batcher that has one per slot."""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue

from container.server.batching.batcher import Batcher, Limits
from container.server.batching.slot_thread import SlotThread
from tests.unit.container.batching.bench import HeldEngine, Row, expected, read


def named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_slot_thread_runs_in_order_and_ends_after_its_work():
    done: SimpleQueue[int | str] = SimpleQueue()
    thread = SlotThread("order")
    running = named("order")
    for number in range(5):
        thread.put(lambda number=number: done.put(number))
    thread.put(lambda: done.put(threading.current_thread().name))
    thread.close()
    assert [done.get(timeout=5) for _ in range(6)] == [0, 1, 2, 3, 4, "order"]
    running[0].join(5)
    assert not named("order")


def test_each_slot_runs_in_its_own_thread_until_the_batcher_closes():
    seen: set[tuple[int, str]] = set()

    class SeenEngine(HeldEngine):
        def run(self, prepared, slot):
            seen.add((slot, threading.current_thread().name))
            return super().run(prepared, slot)

    async def scenario() -> None:
        batcher = Batcher(engine=SeenEngine(slots=2), probe=[], limits=Limits(max_tokens=40, queue_rows=4000))
        asked = [batcher.submit([Row((number, place), 3) for place in range(7)]) for number in range(100)]
        await batcher.drained()
        assert [read(future) for future in asked] == [expected(number, [3] * 7) for number in range(100)]
        batcher.close()

    asyncio.run(scenario())
    assert seen <= {(0, "slot 0"), (1, "slot 1")}
    for thread in named("slot 0") + named("slot 1"):
        thread.join(5)
    assert not named("slot 0") + named("slot 1")


def test_slot_thread_ends_when_the_event_loop_is_gone():
    begun, go = threading.Event(), threading.Event()

    class SlowEngine(HeldEngine):
        def run(self, prepared, slot):
            begun.set()
            assert go.wait(5)
            return super().run(prepared, slot)

    async def scenario() -> None:
        batcher = Batcher(engine=SlowEngine(), probe=[], limits=Limits(max_tokens=40, queue_rows=40))
        batcher.submit([Row((0, 0), 3)])
        await asyncio.sleep(0)
        assert begun.wait(5)
        batcher.close()

    asyncio.run(scenario())
    go.set()
    for thread in named("slot 0"):
        thread.join(5)
    assert not named("slot 0")
