"""The batcher under every interleaving that hypothesis finds.

Slots, kinds, buckets, failures, cancellations, deadlines.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.server.batching.batcher import TYPICAL_LENGTH
from container.server.batching.selection import least_window
from container.server.engines.engine import BucketCosts, LinearCosts
from container.server.types import DeadlinePassed, EngineRefused, QueueFull, Unavailable
from tests.unit.container.batching.harness import (
    PROBE,
    Bench,
    HeldEngine,
    Row,
    expected,
    read,
    run,
    settle,
)

QUEUE_ROWS, MAX_TOKENS, MAX_ROWS = 24, 60, 4
STEPPED = BucketCosts(
    rows=(1, 2, 4),
    lengths=(8, 16, 32),
    measured={
        (rows, length): 1 + rows * length / 50 for rows in (1, 2, 4) for length in (8, 16, 32)
    },
)
AT_ONCE = LinearCosts(fixed_seconds=1e-6, seconds_per_token=0)
ALONE_AT_ONCE = LinearCosts(fixed_seconds=1e-3, seconds_per_token=0)
LENGTHS = st.lists(st.integers(1, 31), min_size=1, max_size=11)
ASK = st.one_of(
    st.tuples(
        st.just("ask"),
        LENGTHS,
        st.none() | st.integers(0, 20),
        st.integers(0, 1),
        st.none() | st.integers(1, 4),
    ),
    st.tuples(st.just("ask"), st.just([5]), st.none(), st.just(0), st.none()),
)
CANCEL = st.tuples(st.just("cancel"), st.integers(0, 30))
STEPS = st.one_of(
    ASK,
    CANCEL,
    st.tuples(st.just("turn"), st.lists(ASK | CANCEL, min_size=2, max_size=5)),
    st.tuples(st.just("release"), st.integers(0, 2), st.none() | st.integers(0, 30)),
    st.tuples(st.just("meet"), st.integers(0, 2), st.lists(ASK, min_size=1, max_size=6)),
    st.tuples(st.just("tick")),
)
BENCHES = st.fixed_dictionaries(
    {
        "slots": st.integers(1, 3),
        "buckets": st.sampled_from([None, (8, 16, 32)]),
        "costs": st.sampled_from(
            [LinearCosts(), LinearCosts(fixed_seconds=0), STEPPED, AT_ONCE, ALONE_AT_ONCE]
        ),
        "inline_rows": st.sampled_from([0, 2, MAX_ROWS]),
        "kinds": st.booleans(),
    }
)


class Asked:
    """What the test knows of one request."""

    def __init__(
        self, rows: Sequence[Row], future: asyncio.Future[Any], deadline: float | None
    ) -> None:
        self.rows, self.future, self.deadline = rows, future, deadline
        self.cancelled_at: int | None = None

    @property
    def poisoned(self) -> bool:
        return any(row.poison for row in self.rows)


class Trial:
    """A bench, what was asked of it, and all that must hold after every step."""

    def __init__(
        self,
        *,
        slots: int,
        buckets: tuple[int, ...] | None,
        costs: Any,
        kinds: bool,
        inline_rows: int,
    ) -> None:
        engine = HeldEngine(
            slots=slots, max_rows=MAX_ROWS, buckets=buckets, inline_rows=inline_rows
        )
        kind = (lambda row: row.kind) if kinds else None
        self.kinds = kinds
        self.window = least_window(
            costs, max_rows=MAX_ROWS, length=8 if buckets else TYPICAL_LENGTH
        )
        self.bench = Bench(
            engine, max_tokens=MAX_TOKENS, queue_rows=QUEUE_ROWS, costs=costs, kind=kind
        )
        self.asked: list[Asked] = []
        self.refused = 0
        self.failed_once: set[tuple[int, int]] = set()
        engine.on_prepare = self.check_batch

    def check_batch(self, rows: Sequence[Row]) -> None:
        """Each batch on its way to a slot, at the moment when it leaves the queue."""
        engine, bench = self.bench.engine, self.bench
        failed = {
            row.identity
            for batch in engine.ran
            if any(row.poison for row in batch)
            for row in batch
        }
        longest = engine.pad_rows(rows)
        assert len(rows) <= MAX_ROWS
        assert len(rows) == 1 or len(rows) * longest <= MAX_TOKENS
        assert not self.kinds or len({row.kind for row in rows}) == 1
        if {row.identity for row in rows} <= failed | {PROBE}:
            return
        assert not any(
            self.asked_for(row).future.done() for row in rows if row.identity[0] < len(self.asked)
        )
        works = [len(thread.works) for thread in bench.threads]
        if min(works) > 0:  # behind a running batch
            assert engine.slots == 1
            assert works == [1]
            full = len(rows) == MAX_ROWS or (len(rows) + 1) * longest > MAX_TOKENS
            assert (
                full or bench.batcher.waiting + len(rows) >= self.window
            )  # no newcomer could join

    def asked_for(self, row: Row) -> Asked:
        return self.asked[row.identity[0]]

    def ask(
        self, lengths: Sequence[int], poison: int | None, kind: int, seconds: int | None
    ) -> None:
        number, now = len(self.asked), asyncio.get_running_loop().time()
        deadline = None if seconds is None else now + seconds
        rows = [
            Row((number, place), length, poison=place == poison, kind=kind)
            for place, length in enumerate(lengths)
        ]
        full = self.bench.batcher.waiting + len(rows) > QUEUE_ROWS
        try:
            future = self.bench.batcher.submit(rows, deadline=deadline)
        except Unavailable as fault:
            assert self.bench.batcher.is_broken or (full and isinstance(fault, QueueFull))
            self.refused += 1
        else:
            assert not full and not self.bench.batcher.is_broken
            self.asked.append(Asked(rows, future, deadline))

    async def step(self, step: tuple[Any, ...]) -> None:
        if step[0] == "turn":  # all in one turn of the event loop
            for part in step[1]:
                self.act(part)
            await settle()
        elif step[0] in ("ask", "cancel"):
            self.act(step)
            await settle()
        elif step[0] == "meet":  # a batch lands in the turn in which others come
            await self.release(step[1] % self.bench.engine.slots, None, step[2])
        elif step[0] == "release":
            await self.release(step[1] % self.bench.engine.slots, step[2])
        elif step[0] == "tick":
            asyncio.get_running_loop().now += 1.0  # type: ignore[attr-defined]
            await settle()
            now = asyncio.get_running_loop().time()
            assert all(
                asked.future.done()
                for asked in self.asked
                if asked.deadline is not None and asked.deadline <= now
            )
        self.check()

    def act(self, step: tuple[Any, ...]) -> None:
        if step[0] == "ask":
            self.ask(*step[1:])
        else:
            self.cancel(step[1])

    def cancel(self, number: int) -> None:
        if number < len(self.asked) and self.asked[number].future.cancel():
            self.asked[number].cancelled_at = len(self.bench.engine.prepared)
            self.check_waiting()

    async def release(
        self, slot: int, cancelled: int | None, coming: Sequence[tuple[Any, ...]] = ()
    ) -> None:
        """Runs a batch, not for nobody.

        Cancels a request, or has others come, before it lands.
        """
        alive = {number for number, asked in enumerate(self.asked) if not asked.future.done()}
        before, thread = len(self.bench.engine.ran), self.bench.threads[slot]
        if thread.works:
            thread.works.popleft()()
        for batch in self.bench.engine.ran[before:]:
            assert batch[0].identity == PROBE or {row.identity[0] for row in batch} & alive
        if cancelled is not None:
            self.cancel(cancelled)
        for step in coming:
            self.act(step)
        await settle()

    def check_waiting(self) -> None:
        held = {row.identity for batch in self.bench.engine.prepared for row in batch}
        waiting = sum(
            row.identity not in held
            for asked in self.asked
            if not asked.future.done()
            for row in asked.rows
        )
        assert self.bench.batcher.waiting == waiting <= QUEUE_ROWS

    def check(self) -> None:
        self.check_waiting()
        if self.bench.batcher.waiting:
            assert all(thread.works for thread in self.bench.threads)
        ended = sum(asked.future.done() for asked in self.asked)
        assert len(self.bench.ledger.over) + len(self.bench.ledger.drops) == ended + self.refused

    def check_end(self) -> None:
        assert not self.bench.batcher.is_broken
        assert self.bench.batcher.waiting == 0
        for number, asked in enumerate(self.asked):
            self.check_answer(number, asked)
        self.check_runs()

    def check_answer(self, number: int, asked: Asked) -> None:
        assert asked.future.done()
        if asked.future.cancelled():
            assert asked.cancelled_at is not None
        elif isinstance(fault := asked.future.exception(), DeadlinePassed):
            assert asked.deadline is not None
            assert fault.retry_after_seconds == 1
        elif asked.poisoned:
            assert isinstance(fault, EngineRefused)
        else:
            assert read(asked.future) == expected(number, [len(row) for row in asked.rows])

    def check_runs(self) -> None:
        """No row runs twice, but alone after its batch failed.

        None leaves the queue after its request was cancelled.
        """
        runs = Counter(
            row.identity
            for batch in self.bench.engine.ran
            for row in batch
            if row.identity != PROBE
        )
        failed = {
            row.identity
            for batch in self.bench.engine.ran
            if any(row.poison for row in batch)
            for row in batch
        }
        assert all(
            count == 1 or (count == 2 and identity in failed) for identity, count in runs.items()
        )
        for batches, batch in enumerate(self.bench.engine.prepared):
            for row in batch:
                if row.identity != PROBE:
                    cancelled_at = self.asked_for(row).cancelled_at
                    assert cancelled_at is None or batches < cancelled_at


@settings(max_examples=400, deadline=None)
@given(BENCHES, st.lists(STEPS, max_size=40))
def test_batcher_answers_each_request_once_with_its_own_rows(bench, steps):
    async def scenario() -> None:
        trial = Trial(**bench)
        for step in steps:
            await trial.step(step)
        while any(thread.works for thread in trial.bench.threads):
            for slot in range(trial.bench.engine.slots):
                await trial.step(("release", slot, None))
        trial.check_end()
        await asyncio.wait_for(trial.bench.batcher.drained(), 1)

    run(scenario())


@settings(max_examples=200, deadline=None)
@given(BENCHES, st.lists(STEPS, max_size=15), st.lists(STEPS, min_size=5, max_size=25))
def test_broken_engine_leaves_no_request_without_an_end(bench, steps, later):
    async def scenario() -> None:
        trial = Trial(**bench)
        trial.bench.engine.on_prepare = lambda rows: None
        for step in steps:
            await trial.step(step)
        trial.bench.engine.dead = True
        for step in [*later, ("ask", [5], None, 0, None)]:
            await trial.step(step)
        await trial.bench.release_all()
        trial.check()
        faults = [asked.future.exception() for asked in trial.asked if not asked.future.cancelled()]
        assert all(
            fault is None or isinstance(fault, EngineRefused | Unavailable) for fault in faults
        )
        assert trial.bench.batcher.is_broken or not trial.bench.ledger.failures
        await asyncio.wait_for(trial.bench.batcher.drained(), 1)

    run(scenario())


def test_refuses_nothing_that_the_property_would_miss():
    """The trial itself can fail: an engine that swaps two rows' answers is seen."""

    async def scenario() -> None:
        trial = Trial(slots=1, buckets=None, costs=LinearCosts(), kinds=False, inline_rows=0)
        honest = trial.bench.engine.answer
        trial.bench.engine.answer = lambda rows: tuple(output[::-1] for output in honest(rows))
        trial.ask([5, 6], None, 0, None)
        await settle()
        await trial.release(0, None)
        with pytest.raises(AssertionError):
            trial.check_end()

    run(scenario())
