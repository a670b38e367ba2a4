"""A link: requests go out, answers come back, and each end knows how the other does."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from container.server.engines.tokens import Tokens
from container.server.processes import frames
from container.server.types import Unavailable
from tests.unit.container.processes.echo import tokens
from tests.unit.container.processes.pairs import Pair, pairs


def test_answers_find_their_requests_in_any_order():
    async def test(pair: Pair) -> None:
        asked = [pair.channel.submit([tokens(number), tokens(number, 1)]) for number in range(20)]
        await pair.backend.holds(20)
        for rows, _, future in reversed(pair.backend.taken):
            future.set_result((np.array([[row.ids.sum()] for row in rows], np.float32),))
        for number, future in enumerate(asked):
            (array,) = await future
            assert array.tolist() == [[number], [number + 1]]
        pair.channel.refuse(100)
        assert not pair.session._running

    pairs(test)


def test_large_requests_and_answers_arrive_whole():
    async def test(pair: Pair) -> None:
        asked = [
            pair.channel.submit([Tokens(np.arange(500_000, dtype=np.int32))]) for _ in range(4)
        ]
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
        asked = pair.channel.submit([tokens(1)], deadline=deadline)
        await pair.backend.holds(1)
        assert deadline - 0.001 <= pair.backend.taken[0][1] <= deadline + 10
        asked.cancel()

    pairs(test)


def test_cancelled_request_is_cancelled_at_the_owner():
    async def test(pair: Pair) -> None:
        asked = pair.channel.submit([tokens(1)])
        await pair.backend.holds(1)
        asked.cancel()
        pair.channel.refuse(100)
        await pair.round_trip()
        assert pair.backend.taken[0][2].cancelled() and not pair.session._running

    pairs(test)


def test_task_that_is_cancelled_while_it_waits_cancels_at_the_owner():
    async def test(pair: Pair) -> None:
        async def ask() -> None:
            await pair.channel.submit([tokens(1)])

        task = asyncio.ensure_future(ask())
        await pair.backend.holds(1)
        task.cancel()
        await asyncio.wait([task])
        await pair.round_trip()
        assert pair.backend.taken[0][2].cancelled()

    pairs(test)


def test_states_arrive_and_requests_wait_for_the_engine():
    async def test(pair: Pair) -> None:
        with pytest.raises(Unavailable, match="loading"):
            await pair.channel.submit([tokens(1)])
        pair.session.send_state(frames.READY, pair.backend)
        assert await pair.states.get() == frames.READY
        asked = pair.channel.submit([tokens(1)])
        await pair.backend.holds(1)
        asked.cancel()

    pairs(test, state=frames.LOADING)


def test_front_that_serves_says_what_it_knows_of_the_owner():
    async def test(pair: Pair) -> None:
        await pair.round_trip()
        assert pair.known == [] and pair.session.known is None
        pair.channel.serve()
        pair.session.send_state(frames.OPENING, pair.backend)
        pair.session.send_state(frames.READY, pair.backend)
        await pair.round_trip()
        assert (
            pair.known == [frames.LOADING, frames.OPENING, frames.READY]
            and pair.session.known == frames.READY
        )

    pairs(test, state=frames.LOADING)


def test_beats_are_missed_until_the_front_says_something():
    async def test(pair: Pair) -> None:
        for _ in range(3):
            pair.session.send_heartbeat()
        assert pair.session.missed_heartbeats == 3 and pair.known == []
        pair.channel.serve()
        await pair.round_trip()
        assert pair.session.missed_heartbeats == 0 and set(pair.known) == {frames.READY}
        assert pair.states.empty(), "a beat is no news"

    pairs(test)


def test_samples_go_both_ways():
    async def test(pair: Pair) -> None:
        await pair.session.request_metric_values()
        assert pair.session.metric_values == b"front's"
        assert await pair.channel.all_metric_values() == b"everyone's"

    pairs(test)


def test_waiting_is_what_the_owner_said_last():
    async def test(pair: Pair) -> None:
        first, second = pair.channel.submit([tokens(1)]), pair.channel.submit([tokens(2)])
        assert pair.channel.waiting == 0
        await pair.backend.holds(2)
        pair.backend.taken[0][2].set_result((np.zeros((1, 1)),))
        await first
        assert pair.channel.waiting == 5
        second.cancel()
        assert pair.channel.waiting == 0

    pairs(test)
