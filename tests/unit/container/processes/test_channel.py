"""A channel: requests go out, answers come back, and each end knows the other's state."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from container.server.engines.tokens import Tokens
from container.server.processes import frames
from container.server.types import Unavailable
from tests.unit.container.processes.echo import tokens
from tests.unit.container.processes.pairs import Pair, with_pair


@with_pair()
async def test_answers_find_their_requests_in_any_order(pair: Pair):
    answers = [pair.channel.submit([tokens(number), tokens(number, 1)]) for number in range(20)]
    await pair.backend.futures(20)
    for rows, _, future in reversed(pair.backend.requests):
        future.set_result((np.array([[row.ids.sum()] for row in rows], np.float32),))
    for number, answer in enumerate(answers):
        assert (await answer)[0].tolist() == [[number], [number + 1]]
    pair.channel.refuse(100)
    assert not pair.session._running


@with_pair()
async def test_large_requests_and_answers_arrive_whole(pair: Pair):
    large = np.arange(500_000, dtype=np.int32)
    answers = [pair.channel.submit([Tokens(large)]) for _ in range(4)]
    await pair.backend.futures(4)
    for rows, _, future in pair.backend.requests:
        future.set_result((rows[0].ids[None],))
    for answer in answers:
        assert np.array_equal((await answer)[0], large[None])


@with_pair()
async def test_supervisor_receives_the_time_that_is_left(pair: Pair):
    deadline = asyncio.get_running_loop().time() + 20
    pair.channel.submit([tokens(1)], deadline=deadline)
    await pair.backend.futures()
    assert deadline - 0.001 <= pair.backend.requests[0][1] <= deadline + 10


@with_pair()
async def test_task_that_is_cancelled_while_it_waits_cancels_at_the_supervisor(pair: Pair):
    async def client() -> None:
        await pair.channel.submit([tokens(1)] * 100)

    task = asyncio.ensure_future(client())
    (future,) = await pair.backend.futures()
    task.cancel()
    await asyncio.wait([task])
    pair.channel.refuse(100)
    await pair.round_trip()
    assert future.cancelled() and not pair.session._running


@with_pair(state=frames.LOADING)
async def test_states_arrive_and_requests_are_refused_until_the_engine_is_loaded(pair: Pair):
    with pytest.raises(Unavailable, match="loading"):
        await pair.channel.submit([tokens(1)])
    pair.session.send_state(frames.READY, pair.backend)
    assert await pair.states.get() == frames.READY
    pair.channel.submit([tokens(1)])
    await pair.backend.futures()


@with_pair(state=frames.LOADING)
async def test_worker_that_serves_acknowledges_states(pair: Pair):
    await pair.round_trip()
    assert pair.known == [] and pair.session.known is None
    pair.channel.serve()
    pair.session.send_state(frames.OPENING, pair.backend)
    pair.session.send_state(frames.READY, pair.backend)
    await pair.round_trip()
    assert pair.known == [frames.LOADING, frames.OPENING, frames.READY]
    assert pair.session.known == frames.READY


@with_pair()
async def test_heartbeats_are_missed_until_the_worker_sends_a_frame(pair: Pair):
    for _ in range(3):
        pair.session.send_heartbeat()
    assert pair.session.missed_heartbeats == 3 and pair.known == []
    pair.channel.serve()
    await pair.round_trip()
    assert pair.session.missed_heartbeats == 0 and set(pair.known) == {frames.READY}
    assert pair.states.empty(), "a heartbeat is no new state"


@with_pair()
async def test_metric_values_go_both_ways(pair: Pair):
    await pair.session.request_snapshot()
    assert pair.session.metric_values == b"worker's"
    assert await pair.channel.all_metric_values() == b"everyone's"


@with_pair()
async def test_waiting_is_as_of_the_supervisors_last_answer(pair: Pair):
    first, second = pair.channel.submit([tokens(1)]), pair.channel.submit([tokens(2)])
    assert pair.channel.waiting == 0
    futures = await pair.backend.futures(2)
    futures[0].set_result((np.zeros((1, 1)),))
    await first
    assert pair.channel.waiting == 5
    second.cancel()
    assert pair.channel.waiting == 0
