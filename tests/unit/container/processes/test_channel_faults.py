"""A channel when something fails: the engine, a request, the other end, or the bytes between."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from container.server.processes import frames
from container.server.processes.channel import GONE
from container.server.processes.worker_session import INTERNAL_FAULT
from container.server.types import DeadlinePassed, EngineRefused, QueueFull, TooLarge, Unavailable
from tests.unit.container.processes.echo import tokens
from tests.unit.container.processes.pairs import Pair, with_pair


@pytest.mark.parametrize(
    "fault", [EngineRefused("not this one"), DeadlinePassed("late"), QueueFull("full")]
)
@with_pair()
async def test_faults_of_the_backend_reach_the_client(pair: Pair, fault):
    pair.backend.fault = fault
    with pytest.raises(type(fault), match=str(fault)):
        await pair.channel.submit([tokens(1)])
    pair.backend.fault = None
    answer = pair.channel.submit([tokens(1)])
    (future,) = await pair.backend.futures()
    future.set_exception(fault)
    with pytest.raises(type(fault), match=str(fault)):
        await answer
    assert not pair.engine_broke and not pair.failed


@with_pair()
async def test_fault_of_ours_is_reported_and_is_a_sentence_for_the_client(pair: Pair):
    answer = pair.channel.submit([tokens(1)])
    (future,) = await pair.backend.futures()
    future.set_exception(KeyError("a bug"))
    with pytest.raises(Unavailable, match=INTERNAL_FAULT):
        await answer
    assert [type(fault) for fault in pair.failed] == [KeyError]


@with_pair()
async def test_answer_larger_than_a_frame_is_refused_alone(pair: Pair):
    answer, other = pair.channel.submit([tokens(1)]), pair.channel.submit([tokens(1)])
    first, second = await pair.backend.futures(2)
    first.set_result((np.zeros(frames.MAX_FRAME_BYTES, np.uint8),))  # untouched: takes no memory
    words = r"take 1073741\d+ bytes, more than 1073741824; send it in parts"
    with pytest.raises(TooLarge, match=words):
        await answer
    second.set_result((np.ones((1, 2)),))
    assert (await other)[0].tolist() == [[1, 1]]
    assert not pair.channel.lost and not pair.failed


@with_pair()
async def test_broken_engine_is_announced(pair: Pair):
    answer = pair.channel.submit([tokens(1)])
    (future,) = await pair.backend.futures()
    pair.backend.is_broken = True
    future.set_exception(Unavailable("the engine fails"))
    with pytest.raises(Unavailable):
        await answer
    assert pair.engine_broke and not pair.channel.is_broken
    pair.session.send_state(frames.BROKEN, pair.backend)
    assert await pair.states.get() == frames.BROKEN and pair.channel.is_broken


@with_pair()
async def test_broken_engine_is_announced_with_the_first_request_that_it_refuses(pair: Pair):
    pair.backend.is_broken, pair.backend.fault = True, Unavailable("the engine fails")
    with pytest.raises(Unavailable, match="the engine fails"):
        await pair.channel.submit([tokens(1)])
    assert pair.engine_broke


@with_pair()
async def test_requests_fail_at_once_when_the_supervisor_goes(pair: Pair):
    answers = [pair.channel.submit([tokens(1)]) for _ in range(3)]
    await pair.backend.futures(3)
    pair.session._transport.abort()
    for answer in answers:
        with pytest.raises(Unavailable, match=GONE):
            await answer
    assert pair.channel.lost and pair.channel.is_broken
    with pytest.raises(Unavailable, match=GONE):
        pair.channel.submit([tokens(1)])
    with pytest.raises(Unavailable, match=GONE):
        await pair.channel.all_metric_values()


@with_pair()
async def test_rows_leave_the_queue_when_the_worker_goes(pair: Pair):
    answer = pair.channel.submit([tokens(1)])
    (future,) = await pair.backend.futures()
    await pair.close()
    assert future.cancelled() and not pair.session._running
    with pytest.raises(Unavailable, match=GONE):
        await answer


@with_pair(max_rows=4)
async def test_refuses_more_rows_than_may_be_unanswered(pair: Pair):
    answer = pair.channel.submit([tokens(1)] * 4)
    words = "4 rows of this process are unanswered and at most 4 may be"
    with pytest.raises(QueueFull, match=words):
        pair.channel.submit([tokens(1)])
    answer.cancel()
    pair.channel.submit([tokens(1)] * 4)


@with_pair()
async def test_refuses_requests_while_the_supervisor_reads_too_slowly(pair: Pair):
    pair.channel.pause_writing()
    with pytest.raises(QueueFull, match="more slowly"):
        pair.channel.submit([tokens(1)])
    pair.channel.resume_writing()
    pair.channel.submit([tokens(1)])


@with_pair()
async def test_refuses_bytes_that_are_no_frames(pair: Pair):
    pair.channel._transport.write(b"\0" * 64)
    await pair.session.lost.wait()
    assert "announces 0 bytes" in str(pair.failed[0])
    assert await pair.states.get() == frames.READY and pair.channel.lost


@with_pair(max_rows=1)
async def test_request_fails_after_its_deadline_though_the_supervisor_is_silent(pair: Pair):
    deadline = asyncio.get_running_loop().time() - 10
    answer = pair.channel.submit([tokens(1)], deadline=deadline)
    pair.channel._sweep()
    with pytest.raises(DeadlinePassed, match="did not answer"):
        await answer
    pair.channel.refuse(1)
