"""The batcher, fact by fact: when a batch leaves, what is in it, how answers come home, who is refused."""

from __future__ import annotations

import asyncio
import gc
import weakref

import numpy as np
import pytest

from container.server.batching.batcher import BROKEN, CLOSED
from container.server.batching.costs import BucketCosts, LinearCosts
from container.server.types import DeadlinePassed, EngineRefused, QueueFull, RequestFault, TooLarge, Unavailable
from tests.unit.container.batching.bench import PROBE, Bench, HeldEngine, expected, identities, read, run, settle


def scenario(test):
    """Runs a coroutine test on a loop of its own."""

    def scene() -> None:
        run(test())

    scene.__name__ = test.__name__
    return scene


def sizes(bench: Bench) -> list[int]:
    return [len(batch) for batch in bench.engine.prepared]


@scenario
async def test_idle_engine_starts_at_once_and_batches_what_came_meanwhile():
    bench = Bench()
    first = bench.ask(0, [3])
    assert sizes(bench) == [1]
    others = [bench.ask(number, [3]) for number in (1, 2, 3)]
    assert sizes(bench) == [1]
    await bench.release_all()
    assert sizes(bench) == [1, 3]
    assert all(future.done() for future in (first, *others))


@scenario
async def test_full_batch_waits_behind_the_running_one():
    bench = Bench()
    bench.ask(0, [3])
    for number in (1, 2, 3):
        bench.ask(number, [3])
    assert sizes(bench) == [1]
    bench.ask(4, [3])
    assert sizes(bench) == [1, 4]
    assert bench.batcher.waiting == 0
    for number in range(5, 14):
        bench.ask(number, [3])
    assert sizes(bench) == [1, 4]
    assert bench.batcher.waiting == 9
    await bench.release()
    assert sizes(bench) == [1, 4, 4]


@scenario
async def test_batch_full_of_tokens_waits_behind_the_running_one():
    bench = Bench()
    bench.ask(0, [3])
    bench.ask(1, [20])
    assert sizes(bench) == [1]
    bench.ask(2, [20])
    assert sizes(bench) == [1, 2]


@scenario
async def test_second_slot_takes_the_place_of_the_batch_in_hand():
    bench = Bench(HeldEngine(slots=2))
    bench.ask(0, [3])
    bench.ask(1, [3])
    bench.ask(2, [3] * 4)
    assert sizes(bench) == [1, 1]
    assert bench.batcher.waiting == 4


@scenario
async def test_batch_in_hand_is_dropped_when_nobody_waits_for_it():
    bench = Bench()
    bench.ask(0, [3])
    gone = bench.ask(1, [3] * 4)
    assert sizes(bench) == [1, 4]
    gone.cancel()
    await bench.release_all()
    assert bench.ran == [[(0, 0)]]
    assert not bench.threads[0].works
    after = bench.ask(2, [3])
    await bench.release_all()
    assert read(after) == expected(2, [3])


@scenario
async def test_rows_spread_evenly_over_idle_slots():
    bench = Bench(HeldEngine(slots=2, max_rows=32), max_tokens=4000)
    future = bench.ask(0, [10] * 32)
    assert sizes(bench) == [16, 16]
    await bench.release(1)
    await bench.release(0)
    assert read(future) == expected(0, [10] * 32)


@scenario
async def test_rows_share_a_slot_where_spreading_them_is_not_faster():
    flat = BucketCosts(rows=(32,), lengths=(16,), measured={(32, 16): 1.0})
    bench = Bench(HeldEngine(slots=2, max_rows=32), max_tokens=4000, costs=flat)
    bench.ask(0, [10] * 32)
    assert sizes(bench) == [32]


@scenario
async def test_batch_keeps_its_limit_where_more_rows_were_measured_to_cost_less():
    odd = BucketCosts(rows=(4, 8), lengths=(16,), measured={(4, 16): 2.0, (8, 16): 1.0})
    bench = Bench(HeldEngine(slots=2, max_rows=4), max_tokens=4000, costs=odd)
    bench.ask(0, [10] * 20)
    assert sizes(bench) == [4, 4]


@scenario
async def test_full_batches_are_not_spread():
    bench = Bench(HeldEngine(slots=2, max_rows=8), max_tokens=4000)
    bench.ask(0, [10] * 20)
    assert sizes(bench) == [8, 8]


@scenario
async def test_long_row_does_not_drag_short_ones_along():
    bench = Bench(HeldEngine(max_rows=32), max_tokens=9000)
    bench.ask(0, [5])
    bench.ask(1, [128])
    bench.ask(2, [8] * 20)
    await bench.release_all()
    assert sizes(bench) == [1, 1, 20]


@scenario
async def test_large_request_is_split_and_rejoined_in_order():
    bench = Bench()
    lengths = [7, 1, 9, 2, 8, 3, 30, 30, 30, 1, 4, 60]
    future = bench.ask(0, lengths)
    await bench.release_all()
    assert read(future) == expected(0, lengths)
    assert len(sizes(bench)) > 3


@scenario
async def test_answers_of_whole_requests_are_views_and_keep_their_types():
    bench = Bench()
    bench.ask(0, [3])
    whole, split = bench.ask(1, [3, 3]), bench.ask(2, [3, 3, 3])
    await bench.release_all()
    assert whole.result()[0].base is not None
    assert [answer.dtype for answer in split.result()] == [np.int64, np.int16]
    assert (read(whole), read(split)) == (expected(1, [3, 3]), expected(2, [3, 3, 3]))


@scenario
async def test_rows_of_a_cancelled_request_never_run():
    bench = Bench()
    bench.ask(0, [1])
    gone, stays = bench.ask(1, [1] * 2), bench.ask(2, [1])
    gone.cancel()
    await bench.release_all()
    assert bench.ran == [[(0, 0)], [(2, 0)]]
    assert stays.done()


@scenario
async def test_cancelled_request_gives_its_place_back_in_the_same_moment():
    bench = Bench(queue_rows=4)
    bench.ask(0, [30])
    gone = bench.ask(1, [1] * 3)
    gone.cancel()
    assert bench.batcher.waiting == 0
    assert bench.ask(2, [1] * 3).done() is False


@scenario
async def test_cancelled_waiter_takes_its_rows_out():
    """A client that leaves cancels the task that awaits the answer, not the answer itself."""
    bench = Bench()
    bench.ask(0, [1])
    client = asyncio.ensure_future(bench.ask(1, [1, 1]))
    await settle()
    client.cancel()
    await settle()
    assert bench.batcher.waiting == 0
    await bench.release_all()
    assert bench.ran == [[(0, 0)]]


@scenario
async def test_refuses_a_request_when_the_queue_is_full():
    bench = Bench(queue_rows=4)
    bench.ask(0, [1])
    waits = bench.ask(1, [1] * 3)
    with pytest.raises(QueueFull, match="3 rows wait already, this request has 2, and at most 4 may wait"):
        bench.ask(2, [1, 1])
    await bench.release_all()
    assert read(waits) == expected(1, [1] * 3)
    assert bench.ledger.drops == [("queue_full", 2)]


@scenario
async def test_refuses_a_request_larger_than_the_queue():
    bench = Bench(queue_rows=4)
    with pytest.raises(TooLarge, match="5 rows and at most 4 may wait; send it in parts"):
        bench.ask(0, [1] * 5)
    assert bench.ledger.drops == [("too_large", 5)]


@scenario
async def test_refuses_a_request_without_rows():
    with pytest.raises(RequestFault, match="no rows"):
        Bench().ask(0, [])


@scenario
async def test_refuses_a_request_whose_deadline_passes():
    bench = Bench()
    runs, waits = bench.ask(0, [1], deadline=1002.0), bench.ask(1, [1], deadline=1002.0)
    stays = bench.ask(2, [1], deadline=1003.0)
    asyncio.get_running_loop().now = 1002.5
    await settle()
    for future in (runs, waits):
        with pytest.raises(DeadlinePassed, match=r"waited 2.5 s.*try again in a second") as caught:
            await future
        assert caught.value.retry_after_seconds == 1
    await bench.release_all()
    assert bench.ran == [[(2, 0)]]  # the thread had not yet come to the first
    assert read(stays) == expected(2, [1])
    assert bench.ledger.drops == [("deadline", 1), ("deadline", 1)]


@scenario
async def test_refuses_a_request_whose_deadline_has_passed_before():
    bench = Bench()
    with pytest.raises(DeadlinePassed, match="before it could wait"):
        bench.ask(0, [1], deadline=1000.0)
    assert bench.ledger.drops == [("deadline", 1)]
    assert not bench.engine.prepared


@scenario
async def test_finished_requests_leave_nothing_behind():
    """Whether they were answered, cancelled or refused, and however far away their deadlines are."""
    bench = Bench(queue_rows=2000)
    asked = [bench.ask(number, [1] * 5, deadline=9000.0, poison=3 if number % 7 == 0 else None) for number in range(300)]
    for future in asked[::3]:
        future.cancel()
    await bench.release_all()
    assert all(future.cancelled() or future.exception() is None or future.exception() for future in asked)
    kept = [weakref.ref(future) for future in asked]
    del asked, future
    gc.collect()
    assert not any(reference() for reference in kept)


@scenario
async def test_poisoned_request_fails_alone():
    bench = Bench()
    bench.ask(0, [1])
    good, bad, other = bench.ask(1, [2]), bench.ask(2, [2], poison=0), bench.ask(3, [2])
    await bench.release_all()
    assert (read(good), read(other)) == (expected(1, [2]), expected(3, [2]))
    assert isinstance(bad.exception(), EngineRefused)
    assert not bench.batcher.broken
    assert bench.ledger.failures == [("poison", 3), ("poison", 1)]
    assert (PROBE,) not in map(tuple, bench.ran)


@scenario
async def test_poisoned_row_of_a_large_request_stops_all_of_it():
    bench = Bench()
    large = bench.ask(0, [3] * 20, poison=0)
    await bench.release_all()
    assert isinstance(large.exception(), EngineRefused)
    assert bench.batcher.waiting == 0
    assert len(bench.ran) <= 3  # the failed batch, the probe, the batch that was in hand


@scenario
async def test_failing_prepare_is_a_failure_of_the_batch():
    bench = Bench()

    def refuse(rows):
        if any(row.poison for row in rows):
            raise ValueError("no shape for these rows")

    bench.engine.on_prepare = refuse
    bench.ask(0, [1])
    good, bad = bench.ask(1, [2]), bench.ask(2, [2], poison=0)
    await bench.release_all()
    assert read(good) == expected(1, [2])
    assert isinstance(bad.exception(), EngineRefused)
    assert bench.ledger.failures == [("no shape for these rows", 2), ("no shape for these rows", 1)]
    alone = bench.ask(3, [2], poison=0)
    await settle()
    await bench.release_all()
    assert isinstance(alone.exception(), EngineRefused)
    assert not bench.batcher.broken


@scenario
async def test_request_cancelled_while_its_batch_is_taken_apart_does_not_run():
    bench = Bench()
    bench.ask(0, [1])
    left, bad, gone = bench.ask(1, [2]), bench.ask(2, [2], poison=0), bench.ask(3, [2])
    await bench.release()
    await bench.release()
    left.cancel()  # on its way to the thread
    gone.cancel()  # not yet
    await bench.release_all()
    assert isinstance(bad.exception(), EngineRefused)
    assert bench.ran == [[(0, 0)], [(1, 0), (2, 0), (3, 0)], [(2, 0)], [PROBE]]
    assert [rows[0].identity for rows in bench.engine.prepared[2:]] == [(1, 0), (2, 0), PROBE]


@scenario
async def test_request_cancelled_while_it_runs_alone_gets_nothing():
    bench = Bench()
    bench.ask(0, [1])
    gone, bad = bench.ask(1, [2]), bench.ask(2, [2], poison=0)
    await bench.release()
    await bench.release()
    bench.threads[0].works.popleft()()
    gone.cancel()
    await settle()
    await bench.release_all()
    assert gone.cancelled()
    assert isinstance(bad.exception(), EngineRefused)
    assert bench.ledger.drops == [("cancelled", 1), ("refused", 1)]


@scenario
async def test_refuses_everything_once_the_engine_fails_on_its_probe():
    bench = Bench()
    bench.engine.dead = True
    running, waiting = bench.ask(0, [1]), bench.ask(1, [1])
    await bench.release_all()
    for future in (running, waiting):
        with pytest.raises(Unavailable, match=BROKEN):
            await future
    assert bench.batcher.broken
    with pytest.raises(Unavailable, match=BROKEN):
        bench.ask(2, [1])
    assert bench.ledger.drops == [("broken", 1)] * 3
    assert bench.ran == [[(0, 0)], [PROBE]]


@scenario
async def test_other_slots_batch_still_answers_after_the_engine_broke():
    bench = Bench(HeldEngine(slots=2))
    first, second = bench.ask(0, [1]), bench.ask(1, [1])
    bench.engine.dead = True
    await bench.release(0)
    await bench.release(0)
    assert bench.batcher.broken
    bench.engine.dead = False
    await bench.release(1)
    assert isinstance(first.exception(), Unavailable)
    assert read(second) == expected(1, [1])


@scenario
async def test_refuses_an_engine_that_loses_rows():
    bench = Bench()
    bench.engine.answer = lambda rows: (np.zeros((len(rows) + 1, 2)),)
    future = bench.ask(0, [1, 1])
    await bench.release_all()
    assert isinstance(future.exception(), Unavailable)
    assert bench.ledger.failures[0] == ("the engine gave output 0 the shape [3, 2] for 2 rows", 2)


@scenario
async def test_rows_of_another_kind_wait_for_a_batch_of_their_own():
    bench = Bench(kind=lambda row: row.kind)
    first = bench.ask(0, [9], kind=7)
    others = [bench.ask(1, [1], kind=1), bench.ask(2, [2], kind=2), bench.ask(3, [1], kind=1)]
    await bench.release_all()
    assert bench.ran == [[(0, 0)], [(1, 0), (3, 0)], [(2, 0)]]
    assert all(future.done() for future in (first, *others))


@pytest.mark.parametrize("change", ["shape", "dtype", "outputs"])
def test_refuses_a_request_whose_answers_do_not_fit_together(change):
    def uneven(rows):
        whole = identities(rows)
        if rows[0].length == 1:
            return whole
        return {"shape": (whole[0][:, :1], whole[1]), "dtype": (whole[0], whole[1].astype(int)), "outputs": whole[:1]}[change]

    async def scene() -> None:
        bench = Bench(costs=LinearCosts(fixed_seconds=0))
        bench.engine.answer = uneven
        bench.ask(0, [1])
        bad, good = bench.ask(1, [1, 30]), bench.ask(2, [1])
        await bench.release_all()
        with pytest.raises(EngineRefused, match=r"do not fit together: int64 \[2\], int16 \[\] for some rows, .* for others"):
            await bad
        assert read(good) == expected(2, [1])
        assert bench.ledger.drops == [("refused", 2)]

    run(scene())


@scenario
async def test_observer_hears_sizes_and_times():
    bench = Bench(HeldEngine(max_rows=8, buckets=(8, 16)), max_tokens=400)
    bench.ask(0, [3])
    bench.ask(1, [4, 7])
    asyncio.get_running_loop().now += 2
    await bench.release_all()
    first, second = bench.ledger.batches
    assert (first["rows"], first["tokens"], first["padded_tokens"], first["queue_seconds"]) == (1, 3, 8, 0)
    assert (second["rows"], second["tokens"], second["padded_tokens"], second["queue_seconds"]) == (2, 11, 16, 2)
    assert second["engine_seconds"] >= 0
    assert bench.ledger.over == [0, 2]


@scenario
async def test_drained_waits_for_what_runs_and_waits():
    bench = Bench()
    bench.ask(0, [3])
    bench.ask(1, [3])
    drained = asyncio.ensure_future(bench.batcher.drained())
    await bench.release()
    assert not drained.done()
    await bench.release()
    assert drained.done()
    await bench.batcher.drained()


@scenario
async def test_close_refuses_what_waits_and_ends_threads_after_what_runs():
    bench = Bench(HeldEngine(slots=2))
    runs = bench.ask(0, [3])
    bench.ask(1, [3])
    await bench.release(1)
    split = bench.ask(2, [3])
    waits = bench.ask(3, [3])
    bench.batcher.close()
    bench.batcher.close()
    with pytest.raises(Unavailable, match=CLOSED):
        await waits
    with pytest.raises(Unavailable, match=CLOSED):
        bench.ask(4, [3])
    assert [thread.closed for thread in bench.threads] == [0, 0]
    await bench.release_all()
    assert (read(runs), read(split)) == (expected(0, [3]), expected(2, [3]))
    assert [thread.closed for thread in bench.threads] == [1, 1]
