"""An engine that fails: which requests are refused, and when the batcher is broken."""

from __future__ import annotations

import pytest

from container.server.batching.failures import BROKEN
from container.server.engines.engine import LinearCosts
from container.server.types import EngineRefused, Unavailable
from tests.unit.container.batching.harness import (
    PROBE,
    Bench,
    expected,
    identities,
    read,
    scenario,
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
