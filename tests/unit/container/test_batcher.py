"""The batcher under every interleaving that hypothesis finds: no answer lost, doubled or handed to the wrong request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.server.batcher import Batcher, Limits, batch_positions
from container.server.types import EngineRefused, QueueFull, Unavailable

LIMITS = Limits(max_rows=4, max_tokens=40, queue_rows=1000)
PROBE = (-1, -1)


class Row:
    """A row that knows who it is."""

    def __init__(self, identity: tuple[int, int], length: int, *, poison: bool = False) -> None:
        self.identity = identity
        self.length = length
        self.poison = poison

    def __len__(self) -> int:
        return self.length


class RecordingEngine:
    """Answers each row with its identity; raises for a batch that holds poison; `dead` raises for all."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []
        self.dead = False

    def run(self, rows: Sequence[Row]) -> np.ndarray:
        if self.dead or any(row.poison for row in rows):
            raise RuntimeError("poison")
        self.batches.append(list(rows))
        return np.array([row.identity for row in rows], dtype=np.float32)


class HeldThread(Executor):
    """An executor that runs a task when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []

    def submit(self, function, /, *arguments, **keywords):
        future: Future = Future()
        self.tasks.append(lambda: future.set_result(function(*arguments, **keywords)))
        return future

    async def release(self) -> None:
        """Runs what waits and lets the loop deliver it."""
        for task in [self.tasks.pop(0) for _ in range(len(self.tasks))]:
            task()
        for _ in range(4):
            await asyncio.sleep(0)

    async def release_all(self) -> None:
        while self.tasks:
            await self.release()


class Bench:
    """A batcher with its engine and its held thread."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.engine = RecordingEngine()
        self.thread = HeldThread()
        self.batcher = Batcher(run=self.engine.run, probe=[Row(PROBE, 1)], limits=limits, thread=self.thread)

    def ask(self, number: int, lengths: Sequence[int], *, poison: bool = False) -> asyncio.Future:
        return self.batcher.submit([Row((number, index), length, poison=poison) for index, length in enumerate(lengths)])


def expected(number: int, lengths: Sequence[int]) -> list[list[float]]:
    return [[number, index] for index in range(len(lengths))]


LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=9)
STEPS = st.one_of(
    st.tuples(st.just("ask"), LENGTHS, st.sampled_from([False, False, False, True])),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("release")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_batcher_gives_each_request_its_own_rows_in_order(steps):
    async def scenario() -> None:
        bench = Bench()
        asked: list[tuple[asyncio.Future, list[int], bool]] = []
        for step in steps:
            if step[0] == "ask":
                asked.append((bench.ask(len(asked), step[1], poison=step[2]), step[1], step[2]))
            elif step[0] == "cancel" and step[1] < len(asked):
                asked[step[1]][0].cancel()
            elif step[0] == "release":
                await bench.thread.release()
        await bench.thread.release_all()
        for number, (future, lengths, poison) in enumerate(asked):
            assert future.done()
            if future.cancelled():
                continue
            if poison:
                assert isinstance(future.exception(), EngineRefused)
            else:
                assert future.result().tolist() == expected(number, lengths)
        ran = [row.identity for batch in bench.engine.batches for row in batch if row.identity != PROBE]
        assert len(ran) == len(set(ran))
        assert bench.batcher.waiting == 0
        assert not bench.batcher.broken

    asyncio.run(scenario())


@given(st.lists(st.integers(1, 200), min_size=1, max_size=60), st.integers(1, 16), st.integers(1, 400))
def test_batch_holds_the_oldest_row_within_both_limits(lengths, max_rows, max_tokens):
    positions = batch_positions(lengths, max_rows=max_rows, max_tokens=max_tokens)
    chosen = [lengths[position] for position in positions]
    assert 0 in positions
    assert len(set(positions)) == len(positions) <= max_rows
    assert chosen == sorted(chosen)
    assert len(positions) == 1 or len(positions) * max(chosen) <= max_tokens


def test_batch_prefers_rows_of_like_length():
    assert [[5, 90, 5, 88, 6][position] for position in batch_positions([5, 90, 5, 88, 6], max_rows=3, max_tokens=999)] == [
        5,
        5,
        6,
    ]


def test_idle_engine_starts_at_once_and_batches_what_came_meanwhile():
    async def scenario() -> None:
        bench = Bench()
        first = bench.ask(0, [3])
        assert len(bench.thread.tasks) == 1
        others = [bench.ask(number, [3]) for number in (1, 2, 3)]
        assert len(bench.thread.tasks) == 1
        await bench.thread.release_all()
        assert [len(batch) for batch in bench.engine.batches] == [1, 3]
        assert all(future.done() for future in (first, *others))

    asyncio.run(scenario())


def test_large_request_is_split_and_rejoined():
    async def scenario() -> None:
        bench = Bench()
        lengths = [7, 1, 9, 2, 8, 3, 30, 30, 30, 1, 4]
        future = bench.ask(0, lengths)
        await bench.thread.release_all()
        assert future.result().tolist() == expected(0, lengths)
        assert len(bench.engine.batches) > 2

    asyncio.run(scenario())


def test_cancelled_request_costs_no_engine_time():
    async def scenario() -> None:
        bench = Bench()
        bench.ask(0, [1])
        gone = bench.ask(1, [1] * 8)
        stays = bench.ask(2, [1])
        gone.cancel()
        await bench.thread.release_all()
        assert stays.result().tolist() == expected(2, [1])
        assert {row.identity[0] for batch in bench.engine.batches for row in batch} == {0, 2}

    asyncio.run(scenario())


def test_cancelled_request_gives_its_place_back():
    async def scenario() -> None:
        bench = Bench(Limits(max_rows=4, max_tokens=40, queue_rows=4))
        bench.ask(0, [1])
        gone = bench.ask(1, [1] * 4)
        gone.cancel()
        await asyncio.sleep(0)
        stays = bench.ask(2, [1] * 4)
        await bench.thread.release_all()
        assert stays.done()

    asyncio.run(scenario())


def test_refuses_a_request_when_the_queue_is_full():
    async def scenario() -> None:
        bench = Bench(Limits(max_rows=4, max_tokens=40, queue_rows=4))
        bench.ask(0, [1])
        waits = bench.ask(1, [1] * 4)
        with pytest.raises(QueueFull, match="4 rows wait already"):
            bench.ask(2, [1])
        await bench.thread.release_all()
        assert waits.result().tolist() == expected(1, [1] * 4)

    asyncio.run(scenario())


def test_poisoned_request_fails_alone():
    async def scenario() -> None:
        bench = Bench()
        bench.ask(0, [1])
        good, bad, other = bench.ask(1, [2]), bench.ask(2, [2], poison=True), bench.ask(3, [2])
        await bench.thread.release_all()
        assert good.result().tolist() == expected(1, [2])
        assert other.result().tolist() == expected(3, [2])
        assert isinstance(bad.exception(), EngineRefused)
        assert not bench.batcher.broken

    asyncio.run(scenario())


def test_refuses_everything_once_the_engine_fails_on_its_probe():
    async def scenario() -> None:
        bench = Bench()
        bench.engine.dead = True
        running, waiting = bench.ask(0, [1]), bench.ask(1, [1])
        await bench.thread.release_all()
        assert isinstance(running.exception(), Unavailable)
        assert isinstance(waiting.exception(), Unavailable)
        assert bench.batcher.broken
        with pytest.raises(Unavailable):
            bench.ask(2, [1])

    asyncio.run(scenario())


def test_refuses_an_engine_that_loses_rows():
    async def scenario() -> None:
        thread = HeldThread()
        batcher = Batcher(run=lambda rows: np.zeros((len(rows) - 1, 2)), probe=[Row((-1, -1), 1)], limits=LIMITS, thread=thread)
        future = batcher.submit([Row((0, 0), 1), Row((0, 1), 1)])
        await thread.release_all()
        assert isinstance(future.exception(), Unavailable)

    asyncio.run(scenario())


def test_rows_of_another_kind_wait_for_a_batch_of_their_own():
    async def scenario() -> None:
        bench = Bench()
        bench.batcher = Batcher(
            run=bench.engine.run, probe=[Row(PROBE, 1)], limits=LIMITS, thread=bench.thread, kind=lambda row: row.length
        )
        first = bench.ask(0, [9])
        others = [bench.ask(1, [1, 2]), bench.ask(2, [2, 1, 1])]
        await bench.thread.release_all()
        assert [[row.length for row in batch] for batch in bench.engine.batches] == [[9], [1, 1, 1], [2, 2]]
        assert np.array_equal(await first, [[0, 0]])
        assert [(await other).tolist() for other in others] == [[[1, 0], [1, 1]], [[2, 0], [2, 1], [2, 2]]]

    asyncio.run(scenario())


def test_refuses_a_request_whose_rows_answers_do_not_fit_together():
    async def scenario() -> None:
        bench = Bench()
        bench.engine.run = lambda rows: [np.zeros(row.identity[1] + 1) for row in rows]  # type: ignore[method-assign]
        bench.batcher = Batcher(run=bench.engine.run, probe=[Row(PROBE, 1)], limits=LIMITS, thread=bench.thread)
        uneven, even = bench.ask(0, [1, 1]), bench.ask(1, [1])
        await bench.thread.release_all()
        with pytest.raises(EngineRefused, match="do not fit together"):
            await uneven
        assert np.array_equal(await even, [[0.0]])

    asyncio.run(scenario())
