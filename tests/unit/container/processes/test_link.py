"""Both ends of a link over a real socket pair, in one process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
import uvloop

from container.server.engines.rows import Tokens
from container.server.processes import frames
from container.server.processes.answerer import OUR_FAULT, Answerer
from container.server.processes.link import GONE, Link
from container.server.types import DeadlinePassed, EngineRefused, QueueFull, Unavailable
from tests.unit.container.processes.echo import tokens


class Held:
    """A backend that keeps what it is given."""

    def __init__(self) -> None:
        self.broken = False
        self.waiting = 5
        self.taken: list[tuple[Any, float | None, asyncio.Future]] = []
        self.fault: Exception | None = None
        self.changed = asyncio.Event()

    def submit(self, rows, *, deadline=None):
        if self.fault is not None:
            raise self.fault
        future = asyncio.get_running_loop().create_future()
        self.taken.append((rows, deadline, future))
        self.changed.set()
        return future

    async def holds(self, count: int) -> None:
        """Waits until so many requests have come."""
        while len(self.taken) < count:
            self.changed.clear()
            await self.changed.wait()


class Pair:
    """A front's link, the owner's end of it, and what they told."""

    def __init__(self) -> None:
        self.backend = Held()
        self.broke: list[bool] = []
        self.failed: list[BaseException] = []
        self.serving: list[bool] = []
        self.states: asyncio.Queue[int] = asyncio.Queue()

    async def open(self, *, state: int = frames.READY, max_rows: int = 100) -> Pair:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        _, self.answerer = await loop.create_unix_connection(lambda: self._answerer(state), sock=ours)
        _, self.link = await loop.create_unix_connection(lambda: self._link(max_rows), sock=theirs)
        assert await self.states.get() == state
        return self

    def _answerer(self, state: int) -> Answerer:
        return Answerer(
            state=state,
            backend=None if state == frames.LOADING else self.backend,
            serves=lambda: self.serving.append(True),
            broke=lambda: self.broke.append(True),
            failed=self.failed.append,
            samples_of_all=self._samples,
        )

    def _link(self, max_rows: int) -> Link:
        return Link(max_rows=max_rows, changed=lambda link: self.states.put_nowait(link.state), samples=lambda: b"front's")

    async def _samples(self) -> bytes:
        return b"everyone's"

    async def round_trip(self) -> None:
        """Returns when all that was sent before has arrived."""
        await self.answerer.ask_samples()
        await self.link.samples_of_all()

    async def close(self) -> None:
        self.link.close()
        await self.answerer.lost.wait()


def pairs(test: Callable[[Pair], Coroutine[Any, Any, None]], **arguments: Any) -> None:
    async def run() -> None:
        pair = await Pair().open(**arguments)
        try:
            await asyncio.wait_for(test(pair), 20)
        finally:
            await pair.close()

    uvloop.run(run())


def test_answers_find_their_requests_in_any_order():
    async def test(pair: Pair) -> None:
        asked = [pair.link.submit([tokens(number), tokens(number, 1)]) for number in range(20)]
        await pair.backend.holds(20)
        for rows, _, future in reversed(pair.backend.taken):
            future.set_result((np.array([[row.ids.sum()] for row in rows], np.float32),))
        for number, future in enumerate(asked):
            (array,) = await future
            assert array.tolist() == [[number], [number + 1]]
        assert (pair.link.unanswered, pair.answerer.running) == (0, 0)

    pairs(test)


def test_large_requests_and_answers_arrive_whole():
    async def test(pair: Pair) -> None:
        asked = [pair.link.submit([Tokens(np.arange(500_000, dtype=np.int32))]) for _ in range(4)]
        await pair.backend.holds(4)
        for rows, _, future in pair.backend.taken:
            future.set_result((rows[0].ids[None],))
        for future in asked:
            (array,) = await future
            assert np.array_equal(array, np.arange(500_000)[None])

    pairs(test)


def test_owner_hears_how_much_time_is_left():
    async def test(pair: Pair) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 20
        asked = pair.link.submit([tokens(1)], deadline=deadline)
        await pair.backend.holds(1)
        assert deadline - 0.001 <= pair.backend.taken[0][1] <= deadline + 10
        asked.cancel()

    pairs(test)


def test_cancelled_request_is_cancelled_at_the_owner():
    async def test(pair: Pair) -> None:
        asked = pair.link.submit([tokens(1)])
        await pair.backend.holds(1)
        asked.cancel()
        assert pair.link.unanswered == 0
        await pair.round_trip()
        assert pair.backend.taken[0][2].cancelled() and pair.answerer.running == 0

    pairs(test)


def test_task_that_is_cancelled_while_it_waits_cancels_at_the_owner():
    async def test(pair: Pair) -> None:
        async def ask() -> None:
            await pair.link.submit([tokens(1)])

        task = asyncio.ensure_future(ask())
        await pair.backend.holds(1)
        task.cancel()
        await asyncio.wait([task])
        await pair.round_trip()
        assert pair.backend.taken[0][2].cancelled()

    pairs(test)


@pytest.mark.parametrize("fault", [EngineRefused("not this one"), DeadlinePassed("late"), QueueFull("full")])
def test_faults_of_the_backend_reach_the_client(fault):
    async def test(pair: Pair) -> None:
        pair.backend.fault = fault
        with pytest.raises(type(fault), match=str(fault)):
            await pair.link.submit([tokens(1)])
        pair.backend.fault = None
        asked = pair.link.submit([tokens(1)])
        await pair.backend.holds(1)
        pair.backend.taken[0][2].set_exception(fault)
        with pytest.raises(type(fault), match=str(fault)):
            await asked
        assert not pair.broke and not pair.failed

    pairs(test)


def test_our_own_fault_is_told_to_the_owner_and_is_a_sentence_for_the_client():
    async def test(pair: Pair) -> None:
        asked = pair.link.submit([tokens(1)])
        await pair.backend.holds(1)
        pair.backend.taken[0][2].set_exception(KeyError("a bug"))
        with pytest.raises(Unavailable, match=OUR_FAULT):
            await asked
        assert [type(fault) for fault in pair.failed] == [KeyError]

    pairs(test)


def test_broken_engine_is_announced():
    async def test(pair: Pair) -> None:
        asked = pair.link.submit([tokens(1)])
        await pair.backend.holds(1)
        pair.backend.broken = True
        pair.backend.taken[0][2].set_exception(Unavailable("the engine fails"))
        with pytest.raises(Unavailable):
            await asked
        assert pair.broke and not pair.link.broken
        pair.answerer.tell(frames.BROKEN, pair.backend)
        assert await pair.states.get() == frames.BROKEN and pair.link.broken

    pairs(test)


def test_states_arrive_and_requests_wait_for_the_engine():
    async def test(pair: Pair) -> None:
        with pytest.raises(Unavailable, match="loading"):
            await pair.link.submit([tokens(1)])
        pair.answerer.tell(frames.READY, pair.backend)
        assert await pair.states.get() == frames.READY
        asked = pair.link.submit([tokens(1)])
        await pair.backend.holds(1)
        asked.cancel()

    pairs(test, state=frames.LOADING)


def test_serving_is_said_once():
    async def test(pair: Pair) -> None:
        assert not pair.serving
        pair.link.serve()
        await pair.round_trip()
        assert pair.serving == [True]

    pairs(test)


def test_samples_go_both_ways():
    async def test(pair: Pair) -> None:
        await pair.answerer.ask_samples()
        assert pair.answerer.samples == b"front's"
        assert await pair.link.samples_of_all() == b"everyone's"

    pairs(test)


def test_waiting_is_what_the_owner_said_last():
    async def test(pair: Pair) -> None:
        first, second = pair.link.submit([tokens(1)]), pair.link.submit([tokens(2)])
        assert pair.link.waiting == 0
        await pair.backend.holds(2)
        pair.backend.taken[0][2].set_result((np.zeros((1, 1)),))
        await first
        assert pair.link.waiting == 5
        second.cancel()
        assert pair.link.waiting == 0

    pairs(test)


def test_requests_fail_at_once_when_the_owner_goes():
    async def test(pair: Pair) -> None:
        asked = [pair.link.submit([tokens(1)]) for _ in range(3)]
        await pair.backend.holds(3)
        pair.answerer.abort()
        for future in asked:
            with pytest.raises(Unavailable, match=GONE):
                await future
        assert pair.link.lost and pair.link.broken
        with pytest.raises(Unavailable, match=GONE):
            pair.link.submit([tokens(1)])
        with pytest.raises(Unavailable, match=GONE):
            await pair.link.samples_of_all()

    pairs(test)


def test_rows_leave_the_queue_when_the_front_goes():
    async def test(pair: Pair) -> None:
        asked = pair.link.submit([tokens(1)])
        await pair.backend.holds(1)
        pair.link.close()
        await pair.answerer.lost.wait()
        assert pair.backend.taken[0][2].cancelled() and pair.answerer.running == 0
        with pytest.raises(Unavailable, match=GONE):
            await asked

    pairs(test)


def test_refuses_more_rows_than_may_be_unanswered():
    async def test(pair: Pair) -> None:
        asked = pair.link.submit([tokens(1)] * 4)
        with pytest.raises(QueueFull, match="4 rows of this process are unanswered and at most 4 may be"):
            pair.link.submit([tokens(1)])
        asked.cancel()
        again = pair.link.submit([tokens(1)] * 4)
        again.cancel()

    pairs(test, max_rows=4)


def test_refuses_requests_while_the_owner_reads_too_slowly():
    async def test(pair: Pair) -> None:
        pair.link.pause_writing()
        with pytest.raises(QueueFull, match="more slowly"):
            pair.link.submit([tokens(1)])
        pair.link.resume_writing()
        pair.link.submit([tokens(1)]).cancel()

    pairs(test)


def test_refuses_bytes_that_are_no_frames():
    async def run() -> None:
        pair = await Pair().open()
        pair.link._transport.write(b"\0" * 64)
        await pair.answerer.lost.wait()
        assert "announces 0 bytes" in str(pair.failed[0])
        assert await pair.states.get() == frames.READY and pair.link.lost

    uvloop.run(run())


def test_unanswered_request_fails_after_its_deadline_though_the_owner_is_silent():
    async def test(pair: Pair) -> None:
        asked = pair.link.submit([tokens(1)], deadline=asyncio.get_running_loop().time() - 10)
        pair.link._sweep()
        with pytest.raises(DeadlinePassed, match="did not answer"):
            await asked
        assert pair.link.unanswered == 0

    pairs(test)
