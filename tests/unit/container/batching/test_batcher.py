"""The batcher, fact by fact: when a batch leaves, its rows, how requests end, engines that fail."""

from __future__ import annotations

import gc
import weakref
from operator import itemgetter

import pytest

from container.server.batching.failures import BROKEN
from container.server.engines.engine import BucketCosts, LinearCosts
from container.server.types import (
    DeadlinePassed,
    EngineRefused,
    QueueFull,
    RequestFault,
    TooLarge,
    Unavailable,
)
from tests.unit.container.batching.harness import (
    PROBE,
    Bench,
    HeldEngine,
    expected,
    identities,
    read,
    scenario,
    settle,
    wait,
)


@scenario
async def test_requests_of_one_turn_of_the_loop_share_a_batch():
    bench = Bench()
    futures = [bench.submit(number, [3]) for number in (0, 1, 2)]
    assert bench.sizes == []
    await settle()
    assert bench.sizes == [3]
    await bench.release_all()
    assert [read(future) for future in futures] == [expected(number, [3]) for number in (0, 1, 2)]


@scenario
async def test_full_batch_waits_behind_the_running_one():
    bench = Bench()
    for number in range(4):
        await bench.queue(number, [3])
    assert bench.sizes == [1]
    await bench.queue(4, [3])
    assert (bench.sizes, bench.batcher.waiting) == ([1, 4], 0)
    for number in range(5, 14):
        await bench.queue(number, [3])
    assert (bench.sizes, bench.batcher.waiting) == ([1, 4], 9)
    await bench.release()
    assert bench.sizes == [1, 4, 4]


@scenario
async def test_batch_that_no_new_row_could_join_is_prefetched_though_it_is_not_full():
    bench = Bench(max_tokens=9000)  # rows within a window of twelve
    for number, length in enumerate([3, 3, 3, *[300] * 8]):
        await bench.queue(number, [length])
    assert bench.sizes == [1]
    for number in (11, 12, 13):
        await bench.queue(number, [300])
    assert bench.sizes == [1, 2]


@scenario
async def test_rows_spread_evenly_over_idle_slots():
    bench = Bench(HeldEngine(slots=2, max_rows=32), max_tokens=4000)
    future = await bench.queue(0, [10] * 32)
    assert bench.sizes == [16, 16]
    await bench.release(1)
    await bench.release(0)
    assert read(future) == expected(0, [10] * 32)


FLAT = BucketCosts(rows=(32,), lengths=(16,), measured={(32, 16): 1.0})
ODD = BucketCosts(rows=(4, 8), lengths=(16,), measured={(4, 16): 2.0, (8, 16): 1.0})


@pytest.mark.parametrize(
    ("max_rows", "costs", "rows", "sizes"),
    [
        pytest.param(32, FLAT, 32, [32], id="spreading is not faster"),
        pytest.param(4, ODD, 20, [4, 4], id="more rows cost less"),
        pytest.param(8, None, 20, [8, 8], id="full batches"),
    ],
)
@scenario
async def test_rows_are_not_spread(max_rows, costs, rows, sizes):
    bench = Bench(HeldEngine(slots=2, max_rows=max_rows), max_tokens=4000, costs=costs)
    await bench.queue(0, [10] * rows)
    assert bench.sizes == sizes


@scenario
async def test_observer_records_sizes_and_times():
    bench = Bench(HeldEngine(max_rows=8, buckets=(8, 16)), max_tokens=400)
    await bench.queue(0, [3])
    await bench.queue(1, [4, 7])
    await wait(2)
    await bench.release_all()
    first, second = bench.ledger.batches
    sizes = itemgetter("rows", "tokens", "padded_tokens")
    assert (sizes(first), sizes(second)) == ((1, 3, 8), (2, 11, 16))
    assert second["engine_seconds"] >= 0
    assert bench.ledger.over == [0, 2]


@pytest.mark.parametrize(
    ("rows", "deadline", "fault", "sentence", "drops"),
    [
        (0, None, RequestFault, "no rows", []),
        (5, None, TooLarge, "5 rows and at most 4 may wait; send it in parts", ["too_large"]),
        (2, None, QueueFull, "3 rows wait already, this request has 2, and at most 4 may wait",
         ["queue_full"]),
        (1, 1000.0, DeadlinePassed, "before it could wait", ["deadline"]),
    ],
)  # fmt: skip
@scenario
async def test_refuses_a_request_that_cannot_wait(rows, deadline, fault, sentence, drops):
    bench = Bench(queue_rows=4)
    await bench.queue(0, [1])
    waits = await bench.queue(1, [1] * 3)
    with pytest.raises(fault, match=sentence):
        await bench.queue(2, [1] * rows, deadline=deadline)
    await bench.release_all()
    assert read(waits) == expected(1, [1] * 3)
    assert bench.ledger.drops == [(reason, rows) for reason in drops]


@scenario
async def test_refuses_a_request_whose_deadline_passes():
    bench = Bench()
    late = [await bench.queue(number, [1], deadline=1002.0) for number in (0, 1)]
    stays = await bench.queue(2, [1], deadline=1003.0)
    await wait(2.5)
    for future in late:
        with pytest.raises(DeadlinePassed, match=r"waited 2.5 s.*try again in a second") as caught:
            await future
        assert caught.value.retry_after_seconds == 1
    await bench.release_all()
    assert bench.ran == [[(2, 0)]]  # the thread had not yet begun the first
    assert read(stays) == expected(2, [1])
    assert bench.ledger.drops == [("deadline", 1), ("deadline", 1)]


@scenario
async def test_finished_requests_leave_nothing_behind():
    """Answered, cancelled or refused, however far away their deadlines are."""
    bench = Bench(queue_rows=2000)
    futures = [
        await bench.queue(number, [1] * 5, deadline=9000.0, poison=3 if number % 7 == 0 else None)
        for number in range(300)
    ]
    for future in futures[::3]:
        future.cancel()
    await bench.release_all()
    faults = [future.exception() for future in futures if not future.cancelled()]
    assert {type(fault) for fault in faults} == {type(None), EngineRefused}
    kept = [weakref.ref(future) for future in futures]
    del futures, future, faults
    gc.collect()
    assert not any(reference() for reference in kept)


async def isolation() -> tuple[Bench, list]:
    """A batch of a sound, a poisoned and a sound request, behind one that runs."""
    bench = Bench()
    await bench.queue(0, [1])
    return bench, [
        await bench.queue(number, [2], poison=0 if number == 2 else None) for number in (1, 2, 3)
    ]


def assert_refused(*futures) -> None:
    assert all(isinstance(future.exception(), EngineRefused) for future in futures)


@scenario
async def test_poisoned_request_fails_alone():
    bench, (good, bad, other) = await isolation()
    await bench.release_all()
    assert (read(good), read(other)) == (expected(1, [2]), expected(3, [2]))
    assert_refused(bad)
    assert not bench.batcher.is_broken
    assert bench.ledger.failures == [("poison", 3), ("poison", 1)]
    assert [PROBE] not in bench.ran


@scenario
async def test_engine_that_dies_after_an_isolated_answer_is_broken_and_no_request_is_blamed():
    bench, (good, bad, sound) = await isolation()
    for _ in range(3):  # the first request, the failed batch, the good request alone
        await bench.release()
    bench.engine.dead = True
    await bench.release_all()
    assert read(good) == expected(1, [2])
    for future in (bad, sound):
        with pytest.raises(Unavailable, match=BROKEN):
            await future
    assert bench.batcher.is_broken
    assert bench.ran[-1] == [PROBE]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda ids, lengths: (ids[:, :1], lengths), id="shape"),
        pytest.param(lambda ids, lengths: (ids, lengths.astype(int)), id="dtype"),
        pytest.param(lambda ids, lengths: (ids,), id="outputs"),
    ],
)
@scenario
async def test_refuses_a_request_whose_answers_do_not_fit_together(change):
    bench = Bench(costs=LinearCosts(fixed_seconds=0))
    bench.engine.answer = lambda rows: (
        identities(rows) if rows[0].length == 1 else change(*identities(rows))
    )
    await bench.queue(0, [1])
    bad, good = await bench.queue(1, [1, 30]), await bench.queue(2, [1])
    await bench.release_all()
    words = r"do not fit together: int64 \[2\], int16 \[\] for some rows, .* for others"
    with pytest.raises(EngineRefused, match=words):
        await bad
    assert read(good) == expected(2, [1])
    assert bench.ledger.drops == [("refused", 2)]
