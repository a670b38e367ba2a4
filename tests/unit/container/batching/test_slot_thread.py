"""The real thread of a slot, and a batcher that has one per slot."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest
import uvloop

from container.server.batching.batcher import Batcher, Limits
from container.server.batching.costs import LinearCosts
from container.server.batching.slot_thread import SlotThread
from tests.unit.container.batching.bench import HeldEngine, Ledger, Row, expected, read


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


@pytest.mark.skipif(sys.platform != "linux", reason="Linux limits the threads of a user")
def test_threads_end_when_the_machine_gives_no_more_of_them():
    """In a process of its own, whose address space ends before the hundredth thread's stack."""
    program = """
import resource, threading
from container.server.batching.slot_thread import slot_threads
from container.server.batching.slots import Slots
from tests.unit.container.batching.bench import HeldEngine
threading.stack_size(64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    Slots(HeldEngine(slots=100))
except RuntimeError as fault:
    print(fault)
for thread in threading.enumerate()[1:]:
    thread.join(20)
print(threading.active_count())
"""
    root = Path(__file__).parents[4]
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert found.stdout.splitlines() == ["can't start new thread", "1"], found.stderr


def test_each_slot_runs_in_its_own_thread_until_the_batcher_closes():
    seen: set[tuple[int, str]] = set()

    class SeenEngine(HeldEngine):
        def run(self, prepared, slot):
            seen.add((slot, threading.current_thread().name))
            return super().run(prepared, slot)

    async def scenario() -> None:
        batcher = Batcher(
            engine=SeenEngine(slots=2), probe=[], limits=Limits(max_tokens=40, queue_rows=4000)
        )
        asked = [
            batcher.submit([Row((number, place), 3) for place in range(7)]) for number in range(100)
        ]
        await batcher.drained()
        assert [read(future) for future in asked] == [
            expected(number, [3] * 7) for number in range(100)
        ]
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
        batcher = Batcher(
            engine=SlowEngine(), probe=[], limits=Limits(max_tokens=40, queue_rows=40)
        )
        batcher.submit([Row((0, 0), 3)])
        await asyncio.sleep(0)
        assert begun.wait(5)
        batcher.close()

    asyncio.run(scenario())
    go.set()
    for thread in named("slot 0"):
        thread.join(5)
    assert not named("slot 0")


def test_queue_seconds_are_finer_than_the_milliseconds_of_uvloops_clock():
    ledger = Ledger()

    async def scenario() -> None:
        engine, limits = HeldEngine(inline_rows=4), Limits(max_tokens=40, queue_rows=40)
        batcher = Batcher(
            engine=engine,
            probe=[],
            limits=limits,
            observer=ledger,
            costs=LinearCosts(fixed_seconds=1e-6),
        )
        for number in range(50):
            await batcher.submit([Row((number, 0), 3)])
        batcher.close()

    uvloop.run(scenario())
    assert all(seconds > 0 for seconds in ledger.over) and len(set(ledger.over)) > 40
