"""Deadlines: each rings once, none after its request is over, and many requests do not pile up."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.server.batching.batch import Job
from container.server.batching.failures import BROKEN
from container.server.batching.timers import GRACE_SECONDS, Deadlines
from container.server.engines.engine import LinearCosts
from container.server.types import DeadlinePassed, Unavailable
from tests.unit.container.batching.harness import (
    Bench,
    HeldEngine,
    Row,
    expected,
    read,
    run,
    scenario,
    settle,
)


class Watchdog:
    """Deadlines that end the requests they find, and who those were."""

    def __init__(self) -> None:
        self.passed: list[int] = []
        self.deadlines = Deadlines(self.ring)
        self.loop = asyncio.get_running_loop()

    def ring(self, job: Job) -> None:
        self.passed.append(job.base)
        job.cancel()

    def add(self, number: int, deadline: float) -> Job:
        forget = lambda job, reason: self.deadlines.forget(job)
        job = Job([Row((number, 0), 1)], number, 0.0, forget, self.loop)
        self.deadlines.add(deadline, job)
        return job


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=20), st.integers(0, 10))
def test_deadlines_pass_in_order_for_those_that_wait(requests, until):
    async def scenario() -> None:
        watch, now = Watchdog(), asyncio.get_running_loop().time()
        for number, (seconds, over) in enumerate(requests):
            job = watch.add(number, now + seconds)
            if over:
                job.cancel()
        for _ in range(until):
            watch.loop.now += 1.0
            await settle()
        due = [
            (seconds, number)
            for number, (seconds, over) in enumerate(requests)
            if seconds <= until and not over
        ]
        assert watch.passed == [number for _, number in sorted(due)]
        watch.deadlines.close()

    run(scenario())


def test_deadlines_of_finished_requests_are_forgotten():
    async def scenario() -> None:
        watch, now = Watchdog(), asyncio.get_running_loop().time()
        waits = watch.add(-1, now + 5)
        for number in range(1000):
            watch.add(number, now + 60).cancel()
            assert len(watch.deadlines) <= 2 * 2 + 64
        watch.loop.now += 5
        await settle()
        assert waits.done()
        watch.deadlines.close()

    run(scenario())


SECONDS = 60.0


async def passes(seconds: float) -> None:
    asyncio.get_running_loop().now += seconds  # type: ignore[attr-defined]
    await settle()


def watched(**changes: int) -> Bench:
    return Bench(HeldEngine(**changes), run_seconds=SECONDS)


@scenario
async def test_batch_that_never_comes_back_breaks_the_batcher():
    bench = watched()
    hanging = await bench.asked(0, [1], deadline=asyncio.get_running_loop().time() + SECONDS)
    waiting = await bench.asked(1, [1])
    await passes(SECONDS)
    assert isinstance(hanging.exception(), DeadlinePassed)
    assert not bench.batcher.is_broken and not waiting.done()
    await passes(GRACE_SECONDS)
    assert bench.batcher.is_broken
    with pytest.raises(Unavailable, match=BROKEN):
        waiting.result()
    with pytest.raises(Unavailable, match=BROKEN):
        bench.ask(2, [1])
    with pytest.raises(Unavailable, match=BROKEN):
        bench.batcher.refuse(1)
    ((words, rows),) = bench.ledger.failures
    assert "more than 60 s and hangs" in words and rows == 0
    assert bench.batcher.waiting == 0
    bench.batcher.close()
    await bench.release_all()
    assert [thread.closed for thread in bench.threads] == [1]


@scenario
async def test_nobody_waits_for_an_engine_that_hangs_to_be_drained():
    bench = watched()
    await bench.asked(0, [1])
    before = asyncio.ensure_future(bench.batcher.drained())
    await passes(SECONDS)
    assert not before.done()
    await passes(GRACE_SECONDS)
    assert before.done()
    await bench.batcher.drained()
    bench.batcher.close()
    await bench.release_all()


@scenario
async def test_one_of_several_slots_that_hangs_is_enough():
    bench = watched(slots=2, max_rows=1)
    first, second = bench.ask(0, [1]), bench.ask(1, [1])
    await settle()
    for number in range(2, 5):  # one slot works on
        await passes(SECONDS / 4)
        bench.ask(number, [1])
        await bench.release(1)
    assert sorted([first.done(), second.done()]) == [False, True]
    await passes(SECONDS / 4)
    await passes(GRACE_SECONDS)
    assert bench.batcher.is_broken


@scenario
async def test_engine_that_is_always_busy_and_comes_back_is_sound():
    bench = watched()
    for number in range(40):
        bench.ask(number, [1])
        await passes(SECONDS * 0.9)
        await bench.release()
    assert not bench.batcher.is_broken and len(bench.ledger.over) == 40


@scenario
async def test_probe_that_hangs_after_a_batch_failed_on_the_event_loop_breaks_the_batcher():
    costs = LinearCosts(fixed_seconds=1e-6, seconds_per_token=0)
    bench = Bench(HeldEngine(inline_rows=4), run_seconds=SECONDS, costs=costs)
    asked = await bench.asked(0, [1], poison=0)
    assert len(bench.threads[0].works) == 1 and not asked.done()
    await passes(SECONDS)
    await passes(GRACE_SECONDS)
    assert bench.batcher.is_broken
    await bench.release_all()
    assert isinstance(asked.exception(), Unavailable)


@scenario
async def test_batch_in_hand_has_its_time_from_when_it_begins():
    bench = watched(max_rows=1)
    first, second = bench.ask(0, [1]), bench.ask(1, [1])
    await settle()
    assert len(bench.threads[0].works) == 2, "the second is in hand"
    await passes(SECONDS * 0.9)
    await bench.release()
    await passes(SECONDS * 0.9)
    await passes(GRACE_SECONDS)
    assert not bench.batcher.is_broken
    await bench.release()
    assert read(first) == expected(0, [1]) and read(second) == expected(1, [1])


@scenario
async def test_process_that_stood_still_takes_no_done_batch_for_a_hanging_one():
    bench = watched()
    asked = await bench.asked(0, [1])
    await passes(10 * SECONDS)
    await bench.release()
    await passes(GRACE_SECONDS)
    assert asked.done() and not bench.batcher.is_broken
    again = await bench.asked(1, [1])
    await passes(SECONDS)
    await passes(GRACE_SECONDS)
    assert bench.batcher.is_broken and not again.done()


@scenario
async def test_nobody_looks_while_nothing_runs_or_without_a_limit():
    loop = asyncio.get_running_loop()
    unwatched = Bench()
    await unwatched.asked(0, [1])
    await passes(1e6)
    await unwatched.release()
    bench = watched()
    await bench.asked(0, [1])
    await bench.release()
    await passes(SECONDS)
    assert not loop._scheduled  # type: ignore[attr-defined]
    await bench.asked(1, [1])
    bench.batcher.close()
    await passes(SECONDS)
    await passes(GRACE_SECONDS)
    assert not bench.batcher.is_broken
    await bench.release()
