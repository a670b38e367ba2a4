"""A link when something fails: the engine, a request, the other end, or the bytes between them."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import uvloop

from container.server.processes import frames
from container.server.processes.channel import GONE
from container.server.processes.worker_session import INTERNAL_FAULT
from container.server.types import DeadlinePassed, EngineRefused, QueueFull, TooLarge, Unavailable
from tests.unit.container.processes.echo import tokens
from tests.unit.container.processes.pairs import Pair, pairs


@pytest.mark.parametrize(
    "fault", [EngineRefused("not this one"), DeadlinePassed("late"), QueueFull("full")]
)
def test_faults_of_the_backend_reach_the_client(fault):
    async def test(pair: Pair) -> None:
        pair.backend.fault = fault
        with pytest.raises(type(fault), match=str(fault)):
            await pair.channel.submit([tokens(1)])
        pair.backend.fault = None
        asked = pair.channel.submit([tokens(1)])
        await pair.backend.holds(1)
        pair.backend.taken[0][2].set_exception(fault)
        with pytest.raises(type(fault), match=str(fault)):
            await asked
        assert not pair.engine_broke and not pair.failed

    pairs(test)


def test_our_own_fault_is_told_to_the_owner_and_is_a_sentence_for_the_client():
    async def test(pair: Pair) -> None:
        asked = pair.channel.submit([tokens(1)])
        await pair.backend.holds(1)
        pair.backend.taken[0][2].set_exception(KeyError("a bug"))
        with pytest.raises(Unavailable, match=INTERNAL_FAULT):
            await asked
        assert [type(fault) for fault in pair.failed] == [KeyError]

    pairs(test)


def test_answer_larger_than_a_frame_is_refused_alone():
    async def test(pair: Pair) -> None:
        asked, other = pair.channel.submit([tokens(1)]), pair.channel.submit([tokens(1)])
        await pair.backend.holds(2)
        pair.backend.taken[0][2].set_result(
            (np.zeros(frames.MAX_FRAME_BYTES, np.uint8),)
        )  # never touched: takes no memory
        with pytest.raises(
            TooLarge, match=r"take 1073741\d+ bytes, more than 1073741824; send it in parts"
        ):
            await asked
        pair.backend.taken[1][2].set_result((np.ones((1, 2)),))
        assert (await other)[0].tolist() == [[1, 1]]
        assert not pair.channel.lost and not pair.failed

    pairs(test)


def test_broken_engine_is_announced():
    async def test(pair: Pair) -> None:
        asked = pair.channel.submit([tokens(1)])
        await pair.backend.holds(1)
        pair.backend.is_broken = True
        pair.backend.taken[0][2].set_exception(Unavailable("the engine fails"))
        with pytest.raises(Unavailable):
            await asked
        assert pair.engine_broke and not pair.channel.is_broken
        pair.session.send_state(frames.BROKEN, pair.backend)
        assert await pair.states.get() == frames.BROKEN and pair.channel.is_broken

    pairs(test)


def test_broken_engine_is_announced_with_the_first_request_that_it_refuses():
    async def test(pair: Pair) -> None:
        pair.backend.is_broken, pair.backend.fault = True, Unavailable("the engine fails")
        with pytest.raises(Unavailable, match="the engine fails"):
            await pair.channel.submit([tokens(1)])
        assert pair.engine_broke

    pairs(test)


def test_requests_fail_at_once_when_the_owner_goes():
    async def test(pair: Pair) -> None:
        asked = [pair.channel.submit([tokens(1)]) for _ in range(3)]
        await pair.backend.holds(3)
        pair.session._transport.abort()
        for future in asked:
            with pytest.raises(Unavailable, match=GONE):
                await future
        assert pair.channel.lost and pair.channel.is_broken
        with pytest.raises(Unavailable, match=GONE):
            pair.channel.submit([tokens(1)])
        with pytest.raises(Unavailable, match=GONE):
            await pair.channel.all_metric_values()

    pairs(test)


def test_rows_leave_the_queue_when_the_front_goes():
    async def test(pair: Pair) -> None:
        asked = pair.channel.submit([tokens(1)])
        await pair.backend.holds(1)
        pair.channel.close()
        await pair.session.lost.wait()
        assert pair.backend.taken[0][2].cancelled() and not pair.session._running
        with pytest.raises(Unavailable, match=GONE):
            await asked

    pairs(test)


def test_refuses_more_rows_than_may_be_unanswered():
    async def test(pair: Pair) -> None:
        asked = pair.channel.submit([tokens(1)] * 4)
        with pytest.raises(
            QueueFull, match="4 rows of this process are unanswered and at most 4 may be"
        ):
            pair.channel.submit([tokens(1)])
        asked.cancel()
        again = pair.channel.submit([tokens(1)] * 4)
        again.cancel()

    pairs(test, max_rows=4)


def test_refuses_requests_while_the_owner_reads_too_slowly():
    async def test(pair: Pair) -> None:
        pair.channel.pause_writing()
        with pytest.raises(QueueFull, match="more slowly"):
            pair.channel.submit([tokens(1)])
        pair.channel.resume_writing()
        pair.channel.submit([tokens(1)]).cancel()

    pairs(test)


def test_refuses_bytes_that_are_no_frames():
    async def run() -> None:
        pair = await Pair().open()
        pair.channel._transport.write(b"\0" * 64)
        await pair.session.lost.wait()
        assert "announces 0 bytes" in str(pair.failed[0])
        assert await pair.states.get() == frames.READY and pair.channel.lost

    uvloop.run(run())


def test_unanswered_request_fails_after_its_deadline_though_the_owner_is_silent():
    async def test(pair: Pair) -> None:
        asked = pair.channel.submit([tokens(1)], deadline=asyncio.get_running_loop().time() - 10)
        pair.channel._sweep()
        with pytest.raises(DeadlinePassed, match="did not answer"):
            await asked
        pair.channel.refuse(100)

    pairs(test)
