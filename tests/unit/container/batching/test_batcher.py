"""The batcher, fact by fact: when a batch leaves, what is in it, how answers come home."""

from __future__ import annotations

import asyncio
from operator import itemgetter

import numpy as np

from container.server.engines.engine import BucketCosts
from tests.unit.container.batching.harness import (
    Bench,
    HeldEngine,
    expected,
    read,
    scenario,
    settle,
)


def sizes(bench: Bench) -> list[int]:
    return [len(batch) for batch in bench.engine.prepared]


@scenario
async def test_idle_engine_starts_at_once_and_batches_what_came_meanwhile():
    bench = Bench()
    first = await bench.asked(0, [3])
    assert sizes(bench) == [1]
    others = [await bench.asked(number, [3]) for number in (1, 2, 3)]
    assert sizes(bench) == [1]
    await bench.release_all()
    assert sizes(bench) == [1, 3]
    assert all(future.done() for future in (first, *others))


@scenario
async def test_requests_of_one_turn_of_the_loop_share_a_batch():
    bench = Bench()
    asked = [bench.ask(number, [3]) for number in (0, 1, 2)]
    assert sizes(bench) == []
    await settle()
    assert sizes(bench) == [3]
    await bench.release_all()
    assert [read(future) for future in asked] == [expected(number, [3]) for number in (0, 1, 2)]


@scenario
async def test_full_batch_waits_behind_the_running_one():
    bench = Bench()
    await bench.asked(0, [3])
    for number in (1, 2, 3):
        await bench.asked(number, [3])
    assert sizes(bench) == [1]
    await bench.asked(4, [3])
    assert sizes(bench) == [1, 4]
    assert bench.batcher.waiting == 0
    for number in range(5, 14):
        await bench.asked(number, [3])
    assert sizes(bench) == [1, 4]
    assert bench.batcher.waiting == 9
    await bench.release()
    assert sizes(bench) == [1, 4, 4]


@scenario
async def test_one_batch_is_in_hand_though_a_batch_lands_in_the_turn_in_which_others_come():
    bench = Bench()
    await bench.asked(0, [3])
    await settle()
    bench.threads[0].works.popleft()()  # lands in the next turn
    asked = [bench.ask(number, [3]) for number in range(1, 15)]  # to be looked at in it, too
    await settle()
    assert sizes(bench) == [1, 4, 4]
    await bench.release_all()
    assert [read(future) for future in asked] == [expected(number, [3]) for number in range(1, 15)]
    await bench.asked(20, [3])
    await bench.asked(21, [3])
    assert [len(thread.works) for thread in bench.threads] == [1]


@scenario
async def test_batch_that_no_new_row_could_join_is_prefetched_though_it_is_not_full():
    bench = Bench(max_tokens=9000)  # rows within a reach of twelve
    await bench.asked(0, [3])
    for number, length in enumerate([3, 3, *[300] * 8], start=1):
        await bench.asked(number, [length])
    assert sizes(bench) == [1]
    for number in (11, 12, 13):
        await bench.asked(number, [300])
    assert sizes(bench) == [1, 2]


@scenario
async def test_batch_full_of_tokens_waits_behind_the_running_one():
    bench = Bench()
    await bench.asked(0, [3])
    await bench.asked(1, [20])
    assert sizes(bench) == [1]
    await bench.asked(2, [20])
    assert sizes(bench) == [1, 2]


@scenario
async def test_second_slot_takes_the_place_of_the_batch_in_hand():
    bench = Bench(HeldEngine(slots=2))
    await bench.asked(0, [3])
    await bench.asked(1, [3])
    await bench.asked(2, [3] * 4)
    assert sizes(bench) == [1, 1]
    assert bench.batcher.waiting == 4


@scenario
async def test_batch_in_hand_is_dropped_when_nobody_waits_for_it():
    bench = Bench()
    await bench.asked(0, [3])
    gone = await bench.asked(1, [3] * 4)
    assert sizes(bench) == [1, 4]
    gone.cancel()
    await bench.release_all()
    assert bench.ran == [[(0, 0)]]
    assert not bench.threads[0].works
    after = await bench.asked(2, [3])
    await bench.release_all()
    assert read(after) == expected(2, [3])


@scenario
async def test_rows_spread_evenly_over_idle_slots():
    bench = Bench(HeldEngine(slots=2, max_rows=32), max_tokens=4000)
    future = await bench.asked(0, [10] * 32)
    assert sizes(bench) == [16, 16]
    await bench.release(1)
    await bench.release(0)
    assert read(future) == expected(0, [10] * 32)


@scenario
async def test_rows_share_a_slot_where_spreading_them_is_not_faster():
    flat = BucketCosts(rows=(32,), lengths=(16,), measured={(32, 16): 1.0})
    bench = Bench(HeldEngine(slots=2, max_rows=32), max_tokens=4000, costs=flat)
    await bench.asked(0, [10] * 32)
    assert sizes(bench) == [32]


@scenario
async def test_batch_keeps_its_limit_where_more_rows_were_measured_to_cost_less():
    odd = BucketCosts(rows=(4, 8), lengths=(16,), measured={(4, 16): 2.0, (8, 16): 1.0})
    bench = Bench(HeldEngine(slots=2, max_rows=4), max_tokens=4000, costs=odd)
    await bench.asked(0, [10] * 20)
    assert sizes(bench) == [4, 4]


@scenario
async def test_full_batches_are_not_spread():
    bench = Bench(HeldEngine(slots=2, max_rows=8), max_tokens=4000)
    await bench.asked(0, [10] * 20)
    assert sizes(bench) == [8, 8]


@scenario
async def test_long_row_does_not_drag_short_ones_along():
    bench = Bench(HeldEngine(max_rows=32), max_tokens=9000)
    await bench.asked(0, [5])
    await bench.asked(1, [128])
    await bench.asked(2, [8] * 20)
    await bench.release_all()
    assert sizes(bench) == [1, 1, 20]


@scenario
async def test_large_request_is_split_and_rejoined_in_order():
    bench = Bench()
    lengths = [7, 1, 9, 2, 8, 3, 30, 30, 30, 1, 4, 60]
    future = await bench.asked(0, lengths)
    await bench.release_all()
    assert read(future) == expected(0, lengths)
    assert len(sizes(bench)) > 3


@scenario
async def test_answers_of_whole_requests_are_views_and_keep_their_types():
    bench = Bench()
    await bench.asked(0, [3])
    whole, split = await bench.asked(1, [3, 3]), await bench.asked(2, [3, 3, 3])
    await bench.release_all()
    assert whole.result()[0].base is not None
    assert [answer.dtype for answer in split.result()] == [np.int64, np.int16]
    assert (read(whole), read(split)) == (expected(1, [3, 3]), expected(2, [3, 3, 3]))


@scenario
async def test_rows_of_another_kind_wait_for_a_batch_of_their_own():
    bench = Bench(kind=lambda row: row.kind)
    first = await bench.asked(0, [9], kind=7)
    others = [
        await bench.asked(1, [1], kind=1),
        await bench.asked(2, [2], kind=2),
        await bench.asked(3, [1], kind=1),
    ]
    await bench.release_all()
    assert bench.ran == [[(0, 0)], [(1, 0), (3, 0)], [(2, 0)]]
    assert all(future.done() for future in (first, *others))


@scenario
async def test_observer_hears_sizes_and_times():
    bench = Bench(HeldEngine(max_rows=8, buckets=(8, 16)), max_tokens=400)
    await bench.asked(0, [3])
    await bench.asked(1, [4, 7])
    asyncio.get_running_loop().now += 2
    await bench.release_all()
    first, second = bench.ledger.batches
    sizes_of = itemgetter("rows", "tokens", "padded_tokens")
    assert (sizes_of(first), sizes_of(second)) == ((1, 3, 8), (2, 11, 16))
    assert second["engine_seconds"] >= 0
    assert bench.ledger.over == [0, 2]


@scenario
async def test_drained_waits_for_what_runs_and_waits():
    bench = Bench()
    await bench.asked(0, [3])
    await bench.asked(1, [3])
    drained = asyncio.ensure_future(bench.batcher.drained())
    await bench.release()
    assert not drained.done()
    await bench.release()
    assert drained.done()
    await bench.batcher.drained()
