"""The batcher beside a model of it, while engines fail in every way, memory is short.

Servers close in mid-flight.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.server.engines.engine import EngineOutOfMemory, LinearCosts
from container.server.types import (
    Arrays,
    DeadlinePassed,
    EngineRefused,
    MemoryShort,
    OutOfMemory,
    QueueFull,
    TooLarge,
    Unavailable,
)
from tests.unit.container.batching.harness import (
    Bench,
    HeldEngine,
    Row,
    expected,
    read,
    run,
    settle,
)

QUEUE_ROWS, RUN_SECONDS = 16, 60.0
FAULTS = {
    "fault": RuntimeError("poison"),
    "memory": EngineOutOfMemory("short"),
    "host memory": MemoryError(),
}
POISONS = st.sampled_from([None, None, None, *FAULTS, "prepare", "lost row"])
ASK = st.tuples(
    st.just("ask"),
    st.lists(st.integers(1, 31), min_size=1, max_size=18),
    st.tuples(POISONS, st.integers(0, 17)),
    st.none() | st.integers(1, 4),
)
SMALL = st.tuples(st.just("ask"), st.just([5]), st.just((None, 0)), st.none())
STEP = st.one_of(
    ASK,
    SMALL,
    SMALL,
    st.tuples(st.just("cancel"), st.integers(0, 40)),
    st.tuples(st.just("release"), st.integers(0, 2)),
    st.tuples(st.just("release"), st.integers(0, 2)),
    st.tuples(st.just("tick"), st.sampled_from([1.0, 1.0, RUN_SECONDS])),
)
LAST = st.sampled_from(["close", "die", "starve", "hang", "nothing"])
BENCHES = st.fixed_dictionaries(
    {
        "slots": st.integers(1, 3),
        "inline_rows": st.sampled_from([0, 0, 4]),
        "seconds": st.sampled_from([1.0, 1e-3, 1e-6]),
        "shortage": st.sampled_from([MemoryShort, OutOfMemory]),
    }
)


class FailingEngine(HeldEngine):
    """Fails as its rows say, or whatever they say."""

    fails: Exception | None = None

    def prepare(self, rows: Sequence[Row]) -> list[Row]:
        prepared = super().prepare(rows)
        if any(row.poison == "prepare" for row in rows):
            raise RuntimeError("no shape for these")
        return prepared

    def run(self, prepared: list[Row], slot: int) -> Arrays:
        self.ran.append(prepared)
        poisons = {row.poison for row in prepared if row.poison}
        for poison in sorted(poisons & set(FAULTS)):
            raise FAULTS[poison]
        if self.fails is not None:
            raise self.fails
        answers = self.answer(prepared)
        return tuple(answer[1:] for answer in answers) if "lost row" in poisons else answers


class Model:
    """What is known of every request, and what must have become of it."""

    def __init__(
        self, *, slots: int, inline_rows: int, seconds: float, shortage: type[Any]
    ) -> None:
        self.engine = FailingEngine(slots=slots, max_rows=4, inline_rows=inline_rows)
        costs = LinearCosts(fixed_seconds=seconds, seconds_per_token=0)
        self.bench = Bench(
            self.engine,
            max_tokens=60,
            queue_rows=QUEUE_ROWS,
            run_seconds=RUN_SECONDS,
            costs=costs,
            shortage=shortage,
        )
        self.shortage = shortage
        self.asked: list[tuple[list[Row], asyncio.Future[Arrays], str | None, bool]] = []
        self.refused: Counter[str] = Counter()
        self.left: set[int] = set()
        self.last = "nothing"

    @property
    def sound(self) -> bool:
        return not (self.bench.batcher.is_broken or self.bench.batcher.closed)

    async def step(self, step: tuple[Any, ...]) -> None:
        kind, *what = step
        if kind == "ask":
            self.ask(*what)
        elif kind == "cancel" and what[0] < len(self.asked) and self.asked[what[0]][1].cancel():
            self.left.add(what[0])
        elif kind == "release":
            await self.bench.release(what[0] % self.engine.slots)
        elif kind == "tick":
            asyncio.get_running_loop().now += what[0]  # type: ignore[attr-defined]
        await settle()
        self.check()

    def ask(self, lengths: list[int], poison: tuple[str | None, int], seconds: int | None) -> None:
        rows = [Row((len(self.asked), place), length) for place, length in enumerate(lengths)]
        rows[poison[1] % len(rows)].poison = poison[0]  # type: ignore[assignment]
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        limits = QUEUE_ROWS - self.bench.batcher.waiting
        try:
            future = self.bench.batcher.submit(rows, deadline=deadline)
        except Unavailable as fault:
            assert not self.sound or (isinstance(fault, QueueFull) and len(rows) > limits)
            self.refused[
                "closing"
                if not self.bench.batcher.is_broken and self.bench.batcher.closed
                else "other"
            ] += len(rows)
            with pytest.raises(Unavailable):
                self.bench.batcher.refuse(len(rows))
            self.refused["other"] += len(rows)
        except TooLarge:
            assert self.sound and len(rows) > QUEUE_ROWS
            self.refused["other"] += len(rows)
        else:
            assert self.sound and len(rows) <= limits
            self.asked.append((rows, future, poison[0], seconds is not None))

    async def end(self, how: str) -> None:
        """Something happens to the server, and the engine goes on with what it has."""
        self.last = how
        if how == "close":
            waiting = [
                future
                for rows, future, _, _ in self.asked
                if not future.done() and not self.is_under_way(rows)
            ]
            self.bench.batcher.close()
            assert all(isinstance(future.exception(), Unavailable) for future in waiting)
        elif how == "die":
            self.engine.fails = RuntimeError("dead")
        elif how == "starve":
            self.engine.fails = MemoryError()
        elif how == "hang":
            busy = any(thread.works for thread in self.bench.threads)
            for seconds in (RUN_SECONDS, RUN_SECONDS, 1.0, 1.0):
                await self.step(("tick", seconds))
            assert self.bench.batcher.is_broken or not busy
        self.check()

    def is_under_way(self, rows: Sequence[Row]) -> bool:
        held = {row.identity for batch in self.engine.prepared for row in batch}
        return any(row.identity in held for row in rows)

    def check(self) -> None:
        """The books balance after every step."""
        ledger, batcher = self.bench.ledger, self.bench.batcher
        ended = [(rows, future) for rows, future, _, _ in self.asked if future.done()]
        answered = [
            rows for rows, future in ended if not future.cancelled() and future.exception() is None
        ]
        assert len(ledger.over) == len(answered)
        record_drop = sum(rows for _, rows in ledger.drops)
        assert (
            record_drop
            == sum(len(rows) for rows, _ in ended) - sum(map(len, answered)) + self.refused.total()
        )
        assert 0 <= batcher.waiting <= QUEUE_ROWS
        assert all(seconds >= 0 for seconds in ledger.over)
        if batcher.waiting and self.sound:
            assert all(thread.works for thread in self.bench.threads), (
                "rows wait beside an idle slot"
            )

    def check_end(self) -> None:
        assert self.bench.batcher.waiting == 0
        for number, (rows, future, poison, hurried) in enumerate(self.asked):
            assert future.done(), (number, self.last)
            self.check_one(number, rows, future, poison, hurried)
        ran = sum(batch["rows"] for batch in self.bench.ledger.batches)
        assert ran <= sum(len(rows) for rows, _, _, _ in self.asked)

    def check_one(
        self,
        number: int,
        rows: list[Row],
        future: asyncio.Future[Arrays],
        poison: str | None,
        hurried: bool,
    ) -> None:
        if future.cancelled():
            assert number in self.left
            return
        fault = future.exception()
        if fault is None:
            assert poison is None
            assert read(future) == expected(number, [len(row) for row in rows])
        elif isinstance(fault, DeadlinePassed):
            assert hurried
        elif isinstance(fault, EngineRefused):
            assert poison in ("fault", "prepare", "lost row")
        elif isinstance(fault, MemoryShort | OutOfMemory):
            assert type(fault) is self.shortage
            assert poison in ("memory", "host memory") or self.last == "starve"
        else:
            assert type(fault) is Unavailable and not self.sound


@settings(max_examples=400, deadline=None)
@given(BENCHES, st.lists(STEP, max_size=30), LAST, st.lists(STEP, max_size=12))
def test_every_request_has_one_end_and_the_books_balance_whatever_happens(
    bench, steps, last, later
):
    async def scenario() -> None:
        model = Model(**bench)
        for step in steps:
            await model.step(step)
        await model.end(last)
        for step in later:
            await model.step(step)
        await model.bench.release_all()
        model.check()
        model.check_end()
        await asyncio.wait_for(model.bench.batcher.drained(), 1)
        model.bench.batcher.close()
        assert [thread.closed for thread in model.bench.threads] == [1] * bench["slots"]

    run(scenario())


def test_refuses_nothing_that_the_model_would_miss():
    """The model can fail: a batcher that forgets a dropped row is seen."""

    async def scenario() -> None:
        model = Model(slots=1, inline_rows=0, seconds=1.0, shortage=MemoryShort)
        await model.step(("ask", [1], ("fault", 0), None))
        await model.bench.release_all()
        model.check()
        model.bench.ledger.drops.pop()
        with pytest.raises(AssertionError):
            model.check()

    run(scenario())
