"""Requests that end without an answer of a sound engine: cancelled, refused, late, at the close."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from container.server.batching.failures import CLOSED
from container.server.types import (
    DeadlinePassed,
    EngineRefused,
    QueueFull,
    RequestFault,
    TooLarge,
    Unavailable,
)
from tests.unit.container.batching.harness import (
    Bench,
    HeldEngine,
    expected,
    read,
    scenario,
    settle,
    wait,
)


@scenario
async def test_cancelled_task_of_a_client_cancels_its_rows():
    """A client that leaves cancels the task that awaits the answer, not the answer itself."""
    bench = Bench()
    await bench.queue(0, [1])

    async def client() -> None:
        await bench.submit(1, [1, 1])

    task = asyncio.ensure_future(client())
    await settle()
    assert bench.batcher.waiting == 2
    task.cancel()
    await settle()
    assert bench.batcher.waiting == 0
    await bench.release_all()
    assert bench.ran == [[(0, 0)]]


@scenario
async def test_refuses_a_request_when_the_queue_is_full():
    bench = Bench(queue_rows=4)
    await bench.queue(0, [1])
    waits = await bench.queue(1, [1] * 3)
    words = "3 rows wait already, this request has 2, and at most 4 may wait"
    with pytest.raises(QueueFull, match=words):
        await bench.queue(2, [1, 1])
    await bench.release_all()
    assert read(waits) == expected(1, [1] * 3)
    assert bench.ledger.drops == [("queue_full", 2)]


@scenario
async def test_refuses_a_request_larger_than_the_queue():
    bench = Bench(queue_rows=4)
    with pytest.raises(TooLarge, match="5 rows and at most 4 may wait; send it in parts"):
        await bench.queue(0, [1] * 5)
    assert bench.ledger.drops == [("too_large", 5)]


@scenario
async def test_refuses_a_request_without_rows():
    with pytest.raises(RequestFault, match="no rows"):
        await Bench().queue(0, [])


@scenario
async def test_refuses_a_request_whose_deadline_passes():
    bench = Bench()
    late = [await bench.queue(number, [1], deadline=1002.0) for number in (0, 1)]
    stays = await bench.queue(2, [1], deadline=1003.0)
    await wait(2.5)
    for future in late:
        with pytest.raises(DeadlinePassed, match=r"waited 2.5 s.*try again in a second") as caught:
            await future
        assert caught.value.retry_after_seconds == 1
    await bench.release_all()
    assert bench.ran == [[(2, 0)]]  # the thread had not yet begun the first
    assert read(stays) == expected(2, [1])
    assert bench.ledger.drops == [("deadline", 1), ("deadline", 1)]


@scenario
async def test_refuses_a_request_whose_deadline_has_passed_before():
    bench = Bench()
    with pytest.raises(DeadlinePassed, match="before it could wait"):
        await bench.queue(0, [1], deadline=1000.0)
    assert bench.ledger.drops == [("deadline", 1)]
    assert not bench.engine.prepared


@scenario
async def test_finished_requests_leave_nothing_behind():
    """Answered, cancelled or refused, however far away their deadlines are."""
    bench = Bench(queue_rows=2000)
    futures = [
        await bench.queue(number, [1] * 5, deadline=9000.0, poison=3 if number % 7 == 0 else None)
        for number in range(300)
    ]
    for future in futures[::3]:
        future.cancel()
    await bench.release_all()
    faults = [future.exception() for future in futures if not future.cancelled()]
    assert {type(fault) for fault in faults} == {type(None), EngineRefused}
    kept = [weakref.ref(future) for future in futures]
    del futures, future, faults
    gc.collect()
    assert not any(reference() for reference in kept)


@scenario
async def test_close_refuses_queued_requests_and_ends_threads_after_running_batches():
    bench = Bench(HeldEngine(slots=2))
    runs = await bench.queue(0, [3])
    await bench.queue(1, [3])
    await bench.release(1)
    also_runs = await bench.queue(2, [3])
    waits = await bench.queue(3, [3])
    bench.batcher.close()
    bench.batcher.close()
    with pytest.raises(Unavailable, match=CLOSED):
        await waits
    with pytest.raises(Unavailable, match=CLOSED):
        await bench.queue(4, [3])
    assert bench.closes == [0, 0]
    await bench.release_all()
    assert (read(runs), read(also_runs)) == (expected(0, [3]), expected(2, [3]))
    assert bench.closes == [1, 1]
