"""The real thread of a slot, batches that run on the event loop instead, and batches that hang."""

from __future__ import annotations

import asyncio
import threading

import pytest

from container.server.batching.batch import Limits
from container.server.batching.batcher import Batcher
from container.server.batching.failures import BROKEN
from container.server.batching.slots import (
    GRACE_SECONDS,
    IDLE_INLINE_SECONDS,
    THREAD_SWITCH_SECONDS,
)
from container.server.engines.engine import BucketCosts, LinearCosts
from container.server.types import DeadlinePassed, Unavailable
from tests.unit.container.batching.harness import (
    Bench,
    HeldEngine,
    Row,
    expected,
    read,
    scenario,
    settle,
    wait,
)


def threads_named(*names: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in names]


def assert_threads_end(*names: str) -> None:
    for thread in threads_named(*names):
        thread.join(5)
    assert not threads_named(*names)


def threaded(engine: HeldEngine, **options) -> Batcher:
    """A batcher with real threads."""
    limits = Limits(max_tokens=40, queue_rows=4000)
    return Batcher(engine=engine, probe=[], limits=limits, **options)


def test_each_slot_runs_in_its_own_thread_until_the_batcher_closes():
    seen: set[tuple[int, str]] = set()

    class SeenEngine(HeldEngine):
        def run(self, prepared, slot):
            seen.add((slot, threading.current_thread().name))
            return super().run(prepared, slot)

    async def run() -> None:
        batcher = threaded(SeenEngine(slots=2))
        requests = [[Row((number, index), 3) for index in range(7)] for number in range(100)]
        futures = [batcher.submit(rows) for rows in requests]
        await asyncio.gather(*futures)
        assert [read(future) for future in futures] == [expected(n, [3] * 7) for n in range(100)]
        batcher.close()

    asyncio.run(run())
    assert seen <= {(0, "slot 0"), (1, "slot 1")}
    assert_threads_end("slot 0", "slot 1")


def test_slot_thread_ends_when_the_event_loop_is_gone():
    begun, go_on = threading.Event(), threading.Event()

    class SlowEngine(HeldEngine):
        def run(self, prepared, slot):
            begun.set()
            assert go_on.wait(5)
            return super().run(prepared, slot)

    async def run() -> None:
        batcher = threaded(SlowEngine())
        batcher.submit([Row((0, 0), 3)])
        await asyncio.sleep(0)
        assert begun.wait(5)
        batcher.close()

    asyncio.run(run())
    go_on.set()
    assert_threads_end("slot 0")


def taking(seconds: float) -> LinearCosts:
    return LinearCosts(fixed_seconds=seconds, seconds_per_token=0)


def inline(seconds: float = IDLE_INLINE_SECONDS, *, inline_rows: int = 4, slots: int = 1) -> Bench:
    """A bench whose batches of few rows take so many seconds."""
    return Bench(HeldEngine(inline_rows=inline_rows, slots=slots), costs=taking(seconds))


@scenario
async def test_row_of_the_only_request_is_answered_when_submit_returns():
    bench = inline(slots=2)
    bench.batcher._costs = BucketCosts(  # type: ignore[attr-defined]
        rows=(1,), lengths=(4, 8), measured={(1, 4): 1e-4, (1, 8): IDLE_INLINE_SECONDS * 1.01}
    )
    assert read(bench.submit(0, [3], alone=True)) == expected(0, [3])
    assert bench.ledger.over == [0] and bench.batcher.waiting == 0
    others = [bench.submit(1, [8], alone=True)]  # too long for the event loop
    await settle()
    others += [bench.submit(2, [3], alone=True)]  # one runs
    await settle()
    assert [len(thread.works) for thread in bench.threads] == [1, 1]
    others += [bench.submit(3, [3]), bench.submit(4, [3, 2], alone=True)]
    assert bench.batcher.waiting == 3 and not any(future.done() for future in others)
    await bench.release_all()
    assert [len(read(future)[1]) for future in others] == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("seconds", "inline_rows"), [(IDLE_INLINE_SECONDS * 1.01, 4), (IDLE_INLINE_SECONDS, 1)]
)
@scenario
async def test_batch_that_is_too_long_or_too_large_runs_in_its_slot(seconds, inline_rows):
    bench = inline(seconds, inline_rows=inline_rows)
    future = await bench.queue(0, [3, 3])
    assert len(bench.threads[0].works) == 1
    await bench.release()
    assert read(future) == expected(0, [3, 3])


@scenario
async def test_batches_shorter_than_a_switch_of_threads_all_run_at_once():
    bench = inline(THREAD_SWITCH_SECONDS)
    futures = [bench.submit(number, [3, 3, 3]) for number in range(8)]
    for _ in range(8):
        await settle()
    assert not bench.threads[0].works
    assert [read(future) for future in futures] == [expected(n, [3, 3, 3]) for n in range(8)]


SECONDS = 60.0


def bench_with_held_engine(**options: int) -> Bench:
    return Bench(HeldEngine(**options), run_seconds=SECONDS)


async def hang() -> None:
    await wait(SECONDS)
    await wait(GRACE_SECONDS)


@scenario
async def test_batch_that_never_ends_breaks_the_batcher():
    bench = bench_with_held_engine()
    deadline = asyncio.get_running_loop().time() + SECONDS
    hanging = await bench.queue(0, [1], deadline=deadline)
    waiting = await bench.queue(1, [1])
    await wait(SECONDS)
    assert isinstance(hanging.exception(), DeadlinePassed)
    assert not bench.batcher.is_broken and not waiting.done()
    await wait(GRACE_SECONDS)
    assert bench.batcher.is_broken
    with pytest.raises(Unavailable, match=BROKEN):
        waiting.result()
    with pytest.raises(Unavailable, match=BROKEN):
        bench.submit(2, [1])
    with pytest.raises(Unavailable, match=BROKEN):
        bench.batcher.refuse(1)
    ((words, rows),) = bench.ledger.failures
    assert "more than 60 s and hangs" in words and rows == 0
    assert bench.batcher.waiting == 0
    bench.batcher.close()
    await bench.release_all()
    assert bench.closes == [1]


@scenario
async def test_batch_that_ended_while_the_process_stood_still_does_not_hang():
    bench = bench_with_held_engine()
    future = await bench.queue(0, [1])
    await wait(10 * SECONDS)
    await bench.release()
    await wait(GRACE_SECONDS)
    assert future.done() and not bench.batcher.is_broken
    again = await bench.queue(1, [1])
    await hang()
    assert bench.batcher.is_broken and not again.done()


@scenario
async def test_watchdog_rests_while_nothing_runs_or_without_a_limit():
    unwatched = Bench()
    await unwatched.queue(0, [1])
    await wait(1e6)
    await unwatched.release()
    bench = bench_with_held_engine()
    await bench.queue(0, [1])
    await bench.release()
    await wait(SECONDS)
    assert not asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    await bench.queue(1, [1])
    bench.batcher.close()
    await hang()
    assert not bench.batcher.is_broken
    await bench.release()
