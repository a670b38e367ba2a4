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

from container.server.batching.batch import Limits
from container.server.batching.batcher import Batcher
from container.server.batching.slots import IDLE_INLINE_SECONDS, THREAD_SWITCH_SECONDS, SlotThread
from container.server.engines.engine import LinearCosts
from container.server.types import EngineRefused
from tests.unit.container.batching.harness import (
    Bench,
    HeldEngine,
    Ledger,
    Row,
    expected,
    read,
    scenario,
    settle,
)


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
from container.server.batching.slots import slot_threads
from container.server.batching.slots import Slots
from tests.unit.container.batching.harness import HeldEngine
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


def taking(seconds: float) -> LinearCosts:
    return LinearCosts(fixed_seconds=seconds, seconds_per_token=0)


def bench(seconds: float, *, inline_rows: int = 4, slots: int = 1) -> Bench:
    return Bench(HeldEngine(inline_rows=inline_rows, slots=slots), costs=taking(seconds))


@scenario
async def test_lone_batch_runs_without_its_slot_s_thread():
    made = bench(IDLE_INLINE_SECONDS)
    asked = await made.asked(0, [3, 5])
    await settle()
    assert not made.threads[0].works and read(asked) == expected(0, [3, 5])
    again = await made.asked(1, [2])
    await settle()
    assert read(again) == expected(1, [2])


@scenario
async def test_long_batch_runs_in_its_slot():
    made = bench(IDLE_INLINE_SECONDS * 1.01)
    asked = await made.asked(0, [3])
    assert len(made.threads[0].works) == 1
    await made.release()
    assert read(asked) == expected(0, [3])


@scenario
async def test_batch_of_more_rows_than_may_runs_in_its_slot():
    made = bench(IDLE_INLINE_SECONDS, inline_rows=1)
    await made.asked(0, [3, 3])
    assert len(made.threads[0].works) == 1


@scenario
async def test_batch_that_others_wait_behind_runs_in_its_slot():
    made = bench(IDLE_INLINE_SECONDS)
    for number in range(3):  # one turn of the loop: more than one batch
        made.ask(number, [3, 3])
    await settle()
    assert len(made.threads[0].works) == 1
    await made.release_all()
    assert sorted(row for batch in made.ran for row in batch) == [
        (number, place) for number in range(3) for place in range(2)
    ]


@scenario
async def test_batch_beside_one_that_runs_takes_the_other_slot():
    made = bench(IDLE_INLINE_SECONDS * 1.01, slots=2)
    await made.asked(0, [3])
    made.batcher._costs = taking(IDLE_INLINE_SECONDS)  # type: ignore[attr-defined]
    await made.asked(1, [3])
    assert [len(thread.works) for thread in made.threads] == [1, 1]


@scenario
async def test_batches_shorter_than_the_way_to_a_thread_all_run_at_once():
    made = bench(THREAD_SWITCH_SECONDS)
    asked = [made.ask(number, [3, 3, 3]) for number in range(8)]
    for _ in range(8):
        await settle()
    assert not made.threads[0].works
    assert [read(each) for each in asked] == [expected(number, [3, 3, 3]) for number in range(8)]


@scenario
async def test_poisoned_request_is_told_apart_from_its_batch_mates():
    made = bench(IDLE_INLINE_SECONDS)
    sound, poisoned = made.ask(0, [3]), made.ask(1, [3], poison=0)
    await settle()
    await made.release_all()
    assert read(sound) == expected(0, [3])
    with pytest.raises(EngineRefused):
        poisoned.result()


@scenario
async def test_observer_hears_of_it_as_of_any_batch():
    made = bench(IDLE_INLINE_SECONDS)
    await made.asked(0, [3, 5])
    await settle()
    assert [
        (facts["rows"], facts["tokens"], facts["padded_tokens"]) for facts in made.ledger.batches
    ] == [(2, 8, 10)]
    assert len(made.ledger.over) == 1
