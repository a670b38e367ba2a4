"""Batches that run on the event loop's own thread: those that run sooner there, and keep nothing
waiting.
"""

from __future__ import annotations

import pytest

from container.server.batching.costs import LinearCosts
from container.server.batching.inline import HOP_SECONDS, LONE_SECONDS
from container.server.types import EngineRefused
from tests.unit.container.batching.bench import Bench, HeldEngine, expected, read, scenario, settle


def taking(seconds: float) -> LinearCosts:
    return LinearCosts(fixed_seconds=seconds, seconds_per_token=0)


def bench(seconds: float, *, inline_rows: int = 4, slots: int = 1) -> Bench:
    return Bench(HeldEngine(inline_rows=inline_rows, slots=slots), costs=taking(seconds))


@scenario
async def test_lone_batch_runs_without_its_slot_s_thread():
    made = bench(LONE_SECONDS)
    asked = await made.asked(0, [3, 5])
    await settle()
    assert not made.threads[0].works and read(asked) == expected(0, [3, 5])
    again = await made.asked(1, [2])
    await settle()
    assert read(again) == expected(1, [2])


@scenario
async def test_long_batch_runs_in_its_slot():
    made = bench(LONE_SECONDS * 1.01)
    asked = await made.asked(0, [3])
    assert len(made.threads[0].works) == 1
    await made.release()
    assert read(asked) == expected(0, [3])


@scenario
async def test_batch_of_more_rows_than_may_runs_in_its_slot():
    made = bench(LONE_SECONDS, inline_rows=1)
    await made.asked(0, [3, 3])
    assert len(made.threads[0].works) == 1


@scenario
async def test_batch_that_others_wait_behind_runs_in_its_slot():
    made = bench(LONE_SECONDS)
    for number in range(3):  # one turn of the loop: more than one batch
        made.ask(number, [3, 3])
    await settle()
    assert len(made.threads[0].works) == 1
    await made.release_all()
    assert sorted(row for batch in made.ran for row in batch) == [
        (number, place) for number in range(3) for place in range(2)
    ]


@scenario
async def test_batch_beside_one_that_runs_takes_the_other_slot():
    made = bench(LONE_SECONDS * 1.01, slots=2)
    await made.asked(0, [3])
    made.batcher._costs = taking(LONE_SECONDS)  # type: ignore[attr-defined]
    await made.asked(1, [3])
    assert [len(thread.works) for thread in made.threads] == [1, 1]


@scenario
async def test_batches_shorter_than_the_way_to_a_thread_all_run_at_once():
    made = bench(HOP_SECONDS)
    asked = [made.ask(number, [3, 3, 3]) for number in range(8)]
    for _ in range(8):
        await settle()
    assert not made.threads[0].works
    assert [read(each) for each in asked] == [expected(number, [3, 3, 3]) for number in range(8)]


@scenario
async def test_poisoned_request_is_told_apart_from_its_batch_mates():
    made = bench(LONE_SECONDS)
    sound, poisoned = made.ask(0, [3]), made.ask(1, [3], poison=0)
    await settle()
    await made.release_all()
    assert read(sound) == expected(0, [3])
    with pytest.raises(EngineRefused):
        poisoned.result()


@scenario
async def test_observer_hears_of_it_as_of_any_batch():
    made = bench(LONE_SECONDS)
    await made.asked(0, [3, 5])
    await settle()
    assert [
        (facts["rows"], facts["tokens"], facts["padded_tokens"]) for facts in made.ledger.batches
    ] == [(2, 8, 10)]
    assert len(made.ledger.over) == 1
