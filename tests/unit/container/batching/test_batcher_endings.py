"""Requests that end without an answer though the engine is sound.

Cancelled, refused, out of time, and at the close.
"""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from container.server.batching.failures import CLOSED
from container.server.types import DeadlinePassed, QueueFull, RequestFault, TooLarge, Unavailable
from tests.unit.container.batching.harness import (
    Bench,
    HeldEngine,
    expected,
    read,
    scenario,
    settle,
)


@scenario
async def test_rows_of_a_cancelled_request_never_run():
    bench = Bench()
    await bench.asked(0, [1])
    gone, stays = await bench.asked(1, [1] * 2), await bench.asked(2, [1])
    gone.cancel()
    await bench.release_all()
    assert bench.ran == [[(0, 0)], [(2, 0)]]
    assert stays.done()


@scenario
async def test_cancelled_request_gives_its_place_back_in_the_same_moment():
    bench = Bench(queue_rows=4)
    await bench.asked(0, [30])
    gone = await bench.asked(1, [1] * 3)
    gone.cancel()
    assert bench.batcher.waiting == 0
    assert (await bench.asked(2, [1] * 3)).done() is False


@scenario
async def test_cancelled_waiter_takes_its_rows_out():
    """A client that leaves cancels the task that awaits the answer, not the answer itself."""
    bench = Bench()
    await bench.asked(0, [1])

    async def ask() -> None:
        await bench.ask(1, [1, 1])

    client = asyncio.ensure_future(ask())
    await settle()
    assert bench.batcher.waiting == 2
    client.cancel()
    await settle()
    assert bench.batcher.waiting == 0
    await bench.release_all()
    assert bench.ran == [[(0, 0)]]


@scenario
async def test_refuses_a_request_when_the_queue_is_full():
    bench = Bench(queue_rows=4)
    await bench.asked(0, [1])
    waits = await bench.asked(1, [1] * 3)
    with pytest.raises(
        QueueFull, match="3 rows wait already, this request has 2, and at most 4 may wait"
    ):
        await bench.asked(2, [1, 1])
    await bench.release_all()
    assert read(waits) == expected(1, [1] * 3)
    assert bench.ledger.drops == [("queue_full", 2)]


@scenario
async def test_refuses_a_request_larger_than_the_queue():
    bench = Bench(queue_rows=4)
    with pytest.raises(TooLarge, match="5 rows and at most 4 may wait; send it in parts"):
        await bench.asked(0, [1] * 5)
    assert bench.ledger.drops == [("too_large", 5)]


@scenario
async def test_refuses_a_request_without_rows():
    with pytest.raises(RequestFault, match="no rows"):
        await Bench().asked(0, [])


@scenario
async def test_refuses_a_request_whose_deadline_passes():
    bench = Bench()
    runs, waits = (
        await bench.asked(0, [1], deadline=1002.0),
        await bench.asked(1, [1], deadline=1002.0),
    )
    stays = await bench.asked(2, [1], deadline=1003.0)
    asyncio.get_running_loop().now = 1002.5
    await settle()
    for future in (runs, waits):
        with pytest.raises(DeadlinePassed, match=r"waited 2.5 s.*try again in a second") as caught:
            await future
        assert caught.value.retry_after_seconds == 1
    await bench.release_all()
    assert bench.ran == [[(2, 0)]]  # the thread had not yet come to the first
    assert read(stays) == expected(2, [1])
    assert bench.ledger.drops == [("deadline", 1), ("deadline", 1)]


@scenario
async def test_refuses_a_request_whose_deadline_has_passed_before():
    bench = Bench()
    with pytest.raises(DeadlinePassed, match="before it could wait"):
        await bench.asked(0, [1], deadline=1000.0)
    assert bench.ledger.drops == [("deadline", 1)]
    assert not bench.engine.prepared


@scenario
async def test_finished_requests_leave_nothing_behind():
    """Whether they were answered, cancelled or refused.

    However far away their deadlines are.
    """
    bench = Bench(queue_rows=2000)
    asked = [
        await bench.asked(number, [1] * 5, deadline=9000.0, poison=3 if number % 7 == 0 else None)
        for number in range(300)
    ]
    for future in asked[::3]:
        future.cancel()
    await bench.release_all()
    assert all(
        future.cancelled() or future.exception() is None or future.exception() for future in asked
    )
    kept = [weakref.ref(future) for future in asked]
    del asked, future
    gc.collect()
    assert not any(reference() for reference in kept)


@scenario
async def test_close_refuses_what_waits_and_ends_threads_after_what_runs():
    bench = Bench(HeldEngine(slots=2))
    runs = await bench.asked(0, [3])
    await bench.asked(1, [3])
    await bench.release(1)
    split = await bench.asked(2, [3])
    waits = await bench.asked(3, [3])
    bench.batcher.close()
    bench.batcher.close()
    with pytest.raises(Unavailable, match=CLOSED):
        await waits
    with pytest.raises(Unavailable, match=CLOSED):
        await bench.asked(4, [3])
    assert [thread.closed for thread in bench.threads] == [0, 0]
    await bench.release_all()
    assert (read(runs), read(split)) == (expected(0, [3]), expected(2, [3]))
    assert [thread.closed for thread in bench.threads] == [1, 1]
