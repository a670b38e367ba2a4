"""An engine that fails: which requests are refused, and when the batcher is broken."""

from __future__ import annotations

import numpy as np
import pytest

from container.server.batching.failures import BROKEN
from container.server.engines.engine import EngineOutOfMemory, LinearCosts
from container.server.types import EngineRefused, MemoryShort, OutOfMemory, Unavailable
from tests.unit.container.batching.harness import (
    PROBE,
    Bench,
    HeldEngine,
    expected,
    identities,
    read,
    scenario,
    settle,
)


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
async def test_poisoned_row_of_a_large_request_stops_all_of_it():
    bench = Bench()
    large = await bench.queue(0, [3] * 20, poison=0)
    await bench.release_all()
    assert_refused(large)
    assert bench.batcher.waiting == 0
    assert len(bench.ran) <= 3  # the failed batch, the probe, the prefetched batch


@scenario
async def test_failing_prepare_is_a_failure_of_the_batch():
    bench = Bench()

    def refuse(rows):
        if any(row.poison for row in rows):
            raise ValueError("no shape for these rows")

    bench.engine.on_prepare = refuse
    await bench.queue(0, [1])
    good, bad = await bench.queue(1, [2]), await bench.queue(2, [2], poison=0)
    await bench.release_all()
    assert read(good) == expected(1, [2])
    assert bench.ledger.failures == [("no shape for these rows", 2), ("no shape for these rows", 1)]
    alone = await bench.queue(3, [2], poison=0)
    await settle()
    await bench.release_all()
    assert_refused(bad, alone)
    assert not bench.batcher.is_broken


@scenario
async def test_request_cancelled_while_its_batch_is_isolated_does_not_run():
    bench, (left, bad, gone) = await isolation()
    await bench.release()
    await bench.release()
    left.cancel()  # on its way to the thread
    gone.cancel()  # not yet
    await bench.release_all()
    assert_refused(bad)
    assert bench.ran == [[(0, 0)], [(1, 0), (2, 0), (3, 0)], [(2, 0)], [PROBE]]
    assert [rows[0].identity for rows in bench.engine.prepared[2:]] == [(1, 0), (2, 0), PROBE]


@scenario
async def test_request_cancelled_while_it_runs_alone_gets_nothing():
    bench = Bench()
    await bench.queue(0, [1])
    gone, bad = await bench.queue(1, [2]), await bench.queue(2, [2], poison=0)
    await bench.release()
    await bench.release()
    bench.threads[0].works.popleft()()
    gone.cancel()
    await settle()
    await bench.release_all()
    assert gone.cancelled()
    assert_refused(bad)
    assert bench.ledger.drops == [("cancelled", 1), ("refused", 1)]


@scenario
async def test_refuses_everything_once_the_engine_fails_on_its_probe():
    bench = Bench()
    bench.engine.dead = True
    futures = [await bench.queue(0, [1]), await bench.queue(1, [1])]
    await bench.release_all()
    for future in futures:
        with pytest.raises(Unavailable, match=BROKEN):
            await future
    assert bench.batcher.is_broken
    with pytest.raises(Unavailable, match=BROKEN):
        await bench.queue(2, [1])
    assert bench.ledger.drops == [("broken", 1)] * 3
    assert bench.ran == [[(0, 0)], [PROBE]]


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


@scenario
async def test_other_slots_batch_still_answers_after_the_engine_broke():
    bench = Bench(HeldEngine(slots=2))
    first, second = await bench.queue(0, [1]), await bench.queue(1, [1])
    bench.engine.dead = True
    await bench.release(0)
    await bench.release(0)
    assert bench.batcher.is_broken
    bench.engine.dead = False
    await bench.release(1)
    assert isinstance(first.exception(), Unavailable)
    assert read(second) == expected(1, [1])


@scenario
async def test_refuses_an_engine_that_loses_rows():
    bench = Bench()
    bench.engine.answer = lambda rows: (np.zeros((len(rows) + 1, 2)),)
    future = await bench.queue(0, [1, 1])
    await bench.release_all()
    assert isinstance(future.exception(), Unavailable)
    assert bench.ledger.failures[0] == ("the engine gave output 0 the shape [3, 2] for 2 rows", 2)


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


def short_of_memory(longest: int, fault: type[Exception] = EngineOutOfMemory):
    """The answers of an engine that has no memory for longer rows."""

    def answer(rows):
        if any(len(row) > longest for row in rows):
            raise fault("Failed to allocate memory")
        return identities(rows)

    return answer


@pytest.mark.parametrize("fault", [EngineOutOfMemory, MemoryError])
@scenario
async def test_request_that_memory_is_too_short_for_may_succeed_later(fault):
    bench = Bench()
    bench.engine.answer = short_of_memory(3, fault)
    await bench.queue(0, [1])
    small, large = await bench.queue(1, [3]), await bench.queue(2, [4])
    await bench.release_all()
    assert read(small) == expected(1, [3])
    assert isinstance(large.exception(), MemoryShort) and large.exception().retry_after_seconds
    assert ("memory", 1) in bench.ledger.drops and not bench.batcher.is_broken
    bench.engine.answer = identities
    again = await bench.queue(3, [4])
    await bench.release_all()
    assert read(again) == expected(3, [4])


@pytest.mark.parametrize(
    ("shortage", "fault"), [(MemoryShort, Unavailable), (OutOfMemory, OutOfMemory)]
)
@scenario
async def test_engine_without_any_memory_is_not_broken(shortage, fault):
    bench = Bench(shortage=shortage)
    bench.engine.answer = short_of_memory(0)
    future = await bench.queue(0, [4])
    await bench.release_all()
    assert isinstance(future.exception(), fault)
    assert not bench.batcher.is_broken
