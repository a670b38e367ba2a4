"""The watchdog finds batches that hang, and no others."""

from __future__ import annotations

import asyncio

import pytest

from container.server.batching.failures import BROKEN
from container.server.batching.slots import GRACE_SECONDS
from container.server.types import DeadlinePassed, Unavailable
from tests.unit.container.batching.harness import (
    Bench,
    HeldEngine,
    expected,
    read,
    scenario,
    settle,
    wait,
)

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
async def test_one_hanging_slot_of_several_breaks_the_batcher():
    bench = bench_with_held_engine(slots=2, max_rows=1)
    futures = bench.submit(0, [1]), bench.submit(1, [1])
    await settle()
    for number in range(2, 5):  # one slot works on
        await wait(SECONDS / 4)
        bench.submit(number, [1])
        await bench.release(1)
    assert sorted(future.done() for future in futures) == [False, True]
    await wait(SECONDS / 4)
    await wait(GRACE_SECONDS)
    assert bench.batcher.is_broken


@scenario
async def test_prefetched_batch_has_its_time_from_when_it_begins():
    bench = bench_with_held_engine(max_rows=1)
    futures = [bench.submit(0, [1]), bench.submit(1, [1])]
    await settle()
    assert len(bench.threads[0].works) == 2, "the second is prefetched"
    await wait(SECONDS * 0.9)
    await bench.release()
    await wait(SECONDS * 0.9)
    await wait(GRACE_SECONDS)
    assert not bench.batcher.is_broken
    await bench.release()
    assert [read(future) for future in futures] == [expected(0, [1]), expected(1, [1])]


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
