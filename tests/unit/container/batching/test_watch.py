"""An engine that hangs: it fails on nothing, and all the same the batcher gives up, in time and
only then.
"""

from __future__ import annotations

import asyncio

import pytest

from container.server.batching.costs import LinearCosts
from container.server.batching.refusals import BROKEN
from container.server.batching.watch import SECOND_LOOK_SECONDS
from container.server.types import DeadlinePassed, Unavailable
from tests.unit.container.batching.bench import Bench, HeldEngine, expected, read, scenario, settle

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
    assert not bench.batcher.broken and not waiting.done()
    await passes(SECOND_LOOK_SECONDS)
    assert bench.batcher.broken
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
    await passes(SECOND_LOOK_SECONDS)
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
    await passes(SECOND_LOOK_SECONDS)
    assert bench.batcher.broken


@scenario
async def test_engine_that_is_always_busy_and_comes_back_is_sound():
    bench = watched()
    for number in range(40):
        bench.ask(number, [1])
        await passes(SECONDS * 0.9)
        await bench.release()
    assert not bench.batcher.broken and len(bench.ledger.over) == 40


@scenario
async def test_probe_that_hangs_after_a_batch_failed_on_the_event_loop_breaks_the_batcher():
    costs = LinearCosts(fixed_seconds=1e-6, seconds_per_token=0)
    bench = Bench(HeldEngine(inline_rows=4), run_seconds=SECONDS, costs=costs)
    asked = await bench.asked(0, [1], poison=0)
    assert len(bench.threads[0].works) == 1 and not asked.done()
    await passes(SECONDS)
    await passes(SECOND_LOOK_SECONDS)
    assert bench.batcher.broken
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
    await passes(SECOND_LOOK_SECONDS)
    assert not bench.batcher.broken
    await bench.release()
    assert read(first) == expected(0, [1]) and read(second) == expected(1, [1])


@scenario
async def test_process_that_stood_still_takes_no_done_batch_for_a_hanging_one():
    bench = watched()
    asked = await bench.asked(0, [1])
    await passes(10 * SECONDS)
    await bench.release()
    await passes(SECOND_LOOK_SECONDS)
    assert asked.done() and not bench.batcher.broken
    again = await bench.asked(1, [1])
    await passes(SECONDS)
    await passes(SECOND_LOOK_SECONDS)
    assert bench.batcher.broken and not again.done()


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
    await passes(SECOND_LOOK_SECONDS)
    assert not bench.batcher.broken
    await bench.release()
