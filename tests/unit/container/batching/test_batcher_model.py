"""The batcher beside a model of it.

Under interleavings of requests, cancellations, deadlines and batches, while engines fail in every
way, memory is short, a batch hangs and servers close.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.server.batching.selection import TYPICAL_LENGTH, least_window
from container.server.engines.engine import BucketCosts, EngineOutOfMemory, LinearCosts
from container.server.types import (
    Arrays,
    DeadlinePassed,
    EngineRefused,
    MemoryShort,
    QueueFull,
    TooLarge,
    Unavailable,
)
from tests.unit.container.batching.harness import (
    PROBE,
    Bench,
    HeldEngine,
    Row,
    expected,
    read,
    scenario,
    settle,
    wait,
)

QUEUE_ROWS, MAX_TOKENS, MAX_ROWS, RUN_SECONDS = 16, 60, 4, 60.0
BUCKETS = (8, 16, 32)
FAULTS = {
    "fault": RuntimeError("poison"),
    "memory": EngineOutOfMemory("short"),
    "host memory": MemoryError(),
}
MEASURED = {(rows, length): 1 + rows * length / 50 for rows in (1, 2, 4) for length in BUCKETS}
COSTS = (
    LinearCosts(),
    LinearCosts(fixed_seconds=0),
    LinearCosts(fixed_seconds=1.0, seconds_per_token=0),
    LinearCosts(fixed_seconds=1e-3, seconds_per_token=0),
    LinearCosts(fixed_seconds=1e-6, seconds_per_token=0),
    BucketCosts(rows=(1, 2, 4), lengths=BUCKETS, measured=MEASURED),
)
POISON = st.tuples(
    st.sampled_from([None, None, None, *FAULTS, "prepare", "lost row"]), st.integers(0, 17)
)
LENGTHS = st.lists(st.integers(1, 31), min_size=1, max_size=18)
KIND = st.integers(0, 1)
DEADLINE = st.none() | st.integers(1, 4)
SMALL = st.tuples(
    *(st.just("submit"), st.just([5]), st.just((None, 0)) | POISON, st.just(0)),
    *(st.just(None) | DEADLINE, st.booleans()),
)
SUBMIT = st.tuples(st.just("submit"), LENGTHS, POISON, KIND, DEADLINE, st.booleans()) | SMALL
ACTION = SUBMIT | st.tuples(st.just("cancel"), st.integers(0, 40))
STEP = st.one_of(
    st.tuples(st.just("turn"), st.lists(ACTION, min_size=1, max_size=1)),
    st.tuples(st.just("turn"), st.lists(ACTION, min_size=2, max_size=5)),
    st.tuples(st.just("release"), st.integers(0, 2), st.just([])),
    st.tuples(st.just("release"), st.integers(0, 2), st.lists(ACTION, max_size=6)),
    st.tuples(st.just("tick"), st.sampled_from([1.0, 1.0, RUN_SECONDS])),
)
LAST = st.sampled_from(["close", "die", "starve", "hang", "nothing"])
OPTIONS = st.fixed_dictionaries(
    {
        "slots": st.integers(1, 3),
        "buckets": st.sampled_from([None, BUCKETS]),
        "costs": st.sampled_from(COSTS),
        "inline_rows": st.sampled_from([0, 2, MAX_ROWS]),
        "kinds": st.booleans(),
    }
)


class FailingEngine(HeldEngine):
    """Fails as its rows say, or with `fails` on all."""

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


@dataclass
class Submitted:
    """A request and what must become of it."""

    rows: list[Row]
    future: asyncio.Future[Arrays]
    poison: str | None
    deadline: float | None
    cancelled_at: int | None = None
    """Batches that had left the queue when it was cancelled."""


def now() -> float:
    return asyncio.get_running_loop().time()


def identities(rows: Sequence[Row]) -> set[tuple[int, int]]:
    return {row.identity for row in rows}


class Model:
    """Every request, and all that must hold after every step."""

    def __init__(
        self,
        *,
        slots: int = 1,
        buckets: tuple[int, ...] | None = None,
        costs: Any = COSTS[0],
        inline_rows: int = 0,
        kinds: bool = False,
    ) -> None:
        self.engine = FailingEngine(
            slots=slots, max_rows=MAX_ROWS, buckets=buckets, inline_rows=inline_rows
        )
        self.bench = Bench(
            self.engine,
            max_tokens=MAX_TOKENS,
            queue_rows=QUEUE_ROWS,
            run_seconds=RUN_SECONDS,
            costs=costs,
            kind=(lambda row: row.kind) if kinds else None,
        )
        self.batcher, self.kinds = self.bench.batcher, kinds
        usual = buckets[0] if buckets else TYPICAL_LENGTH
        self.window = least_window(costs, max_rows=MAX_ROWS, length=usual)
        self.requests: list[Submitted] = []
        self.refused_rows = 0
        self.last = "nothing"
        self.engine.on_prepare = self.check_batch

    @property
    def is_sound(self) -> bool:
        return not (self.batcher.is_broken or self.batcher.closed)

    async def step(self, step: tuple[Any, ...]) -> None:
        kind, *arguments = step
        if kind == "turn":  # all in one turn of the event loop
            self.act(*arguments)
            await settle()
        elif kind == "release":
            await self.release(*arguments)
        else:
            await wait(arguments[0])
            late = [
                request.future
                for request in self.requests
                if request.deadline is not None and request.deadline <= now()
            ]
            assert self.batcher.closed or all(future.done() for future in late)
        self.check()

    def act(self, actions: Sequence[tuple[Any, ...]]) -> None:
        for action, *arguments in actions:
            if action == "submit":
                self.submit(*arguments)
            elif arguments[0] < len(self.requests):
                request = self.requests[arguments[0]]
                if request.future.cancel():
                    request.cancelled_at = len(self.engine.prepared)
                    self.check_waiting()

    def submit(
        self,
        lengths: list[int],
        poison: tuple[str | None, int],
        kind: int,
        seconds: int | None,
        alone: bool,
    ) -> None:
        number, most = len(self.requests), QUEUE_ROWS - self.batcher.waiting
        rows = [Row((number, index), length, kind=kind) for index, length in enumerate(lengths)]
        rows[poison[1] % len(rows)].poison = poison[0]
        deadline = None if seconds is None else now() + seconds
        try:
            future = self.batcher.submit(rows, deadline=deadline, alone=alone)
        except Unavailable as fault:
            assert not self.is_sound or (isinstance(fault, QueueFull) and len(rows) > most)
            with pytest.raises(Unavailable):
                self.batcher.refuse(len(rows))
            self.refused_rows += 2 * len(rows)
        except TooLarge:
            assert self.is_sound and len(rows) > QUEUE_ROWS
            self.refused_rows += len(rows)
        else:
            assert self.is_sound and len(rows) <= most
            self.requests.append(Submitted(rows, future, poison[0], deadline))

    async def release(self, slot: int, actions: Sequence[tuple[Any, ...]]) -> None:
        """Run a batch for at least one request; act in the turn in which it is delivered."""
        alive = {n for n, request in enumerate(self.requests) if not request.future.done()}
        before, works = len(self.engine.ran), self.bench.threads[slot % self.engine.slots].works
        if works:
            works.popleft()()
        for batch in self.engine.ran[before:]:
            assert batch[0].identity == PROBE or {row.identity[0] for row in batch} & alive
        self.act(actions)
        await settle()

    async def end(self, last: str) -> None:
        """Something happens to the server, and the engine goes on with its batches."""
        self.last = last
        if last == "close":
            under_way = identities([row for batch in self.engine.prepared for row in batch])
            waiting = [
                request.future
                for request in self.requests
                if not request.future.done() and not identities(request.rows) & under_way
            ]
            self.batcher.close()
            assert all(isinstance(future.exception(), Unavailable) for future in waiting)
        elif last == "die":
            self.engine.fails = RuntimeError("dead")
        elif last == "starve":
            self.engine.fails = MemoryError()
        elif last == "hang":
            busy = any(thread.works for thread in self.bench.threads)
            for seconds in (RUN_SECONDS, RUN_SECONDS, 1.0, 1.0):
                await self.step(("tick", seconds))
            assert self.batcher.is_broken or not busy
        self.check()

    def poisoned(self) -> set[tuple[int, int]]:
        """The rows of batches that failed, whose requests run alone afterwards."""
        batches = [batch for batch in self.engine.prepared if any(row.poison for row in batch)]
        return identities([row for batch in batches for row in batch])

    def check_batch(self, rows: Sequence[Row]) -> None:
        """A batch holds to its limits when it leaves the queue."""
        if identities(rows) <= self.poisoned() | {PROBE} or self.engine.fails is not None:
            return
        longest = max(map(len, rows))
        if self.engine.sequence_buckets is not None:
            longest = min(bucket for bucket in BUCKETS if bucket >= longest)
        assert len(rows) <= MAX_ROWS
        assert len(rows) == 1 or len(rows) * longest <= MAX_TOKENS
        assert not self.kinds or len({row.kind for row in rows}) == 1
        numbers = {row.identity[0] for row in rows} & set(range(len(self.requests)))
        assert not any(self.requests[number].future.done() for number in numbers)
        works = [len(thread.works) for thread in self.bench.threads]
        if min(works) > 0:  # behind a running batch: full, or no newcomer could join
            assert works == [1]
            full = len(rows) == MAX_ROWS or (len(rows) + 1) * longest > MAX_TOKENS
            assert full or self.batcher.waiting + len(rows) >= self.window

    def check_waiting(self) -> None:
        left = identities([row for batch in self.engine.prepared for row in batch])
        alive = [request for request in self.requests if not request.future.done()]
        waiting = sum(len(identities(request.rows) - left) for request in alive)
        assert self.batcher.waiting == waiting <= QUEUE_ROWS

    def check(self) -> None:
        """The books balance after every step."""
        self.check_waiting()
        ledger, rows = self.bench.ledger, Counter[bool]()
        answered = 0
        for request in self.requests:
            future = request.future
            if future.done():
                is_answer = not future.cancelled() and future.exception() is None
                answered += is_answer
                rows[is_answer] += len(request.rows)
        assert len(ledger.over) == answered and min(ledger.over, default=0) >= 0
        assert sum(count for _, count in ledger.drops) == rows[False] + self.refused_rows
        if self.batcher.waiting and self.is_sound:
            assert all(thread.works for thread in self.bench.threads), "idle beside waiting rows"

    def check_end(self) -> None:
        assert self.batcher.waiting == 0
        for number, request in enumerate(self.requests):
            self.check_request(number, request)
        self.check_runs()

    def check_request(self, number: int, request: Submitted) -> None:
        assert request.future.done(), (number, self.last)
        if request.future.cancelled():
            assert request.cancelled_at is not None
            return
        fault = request.future.exception()
        if fault is None:
            assert request.poison is None
            assert read(request.future) == expected(number, [len(row) for row in request.rows])
        elif isinstance(fault, DeadlinePassed):
            assert request.deadline is not None and fault.retry_after_seconds == 1
        elif isinstance(fault, EngineRefused):
            assert request.poison in ("fault", "prepare", "lost row")
        elif isinstance(fault, MemoryShort):
            assert request.poison in ("memory", "host memory") or self.last == "starve"
        else:
            assert type(fault) is Unavailable and not self.is_sound

    def check_runs(self) -> None:
        """No row runs twice, but alone after its batch failed; none leaves after cancellation."""
        for batches, batch in enumerate(self.engine.prepared):
            for number in {row.identity[0] for row in batch} - {PROBE[0]}:
                cancelled_at = self.requests[number].cancelled_at
                assert cancelled_at is None or batches < cancelled_at
        if self.engine.fails is None:
            poisoned = self.poisoned() | {PROBE}
            runs = Counter(identity for batch in self.bench.ran for identity in batch)
            assert all(
                count == 1 or identity == PROBE or (count == 2 and identity in poisoned)
                for identity, count in runs.items()
            )


@settings(max_examples=600, deadline=None)
@given(OPTIONS, st.lists(STEP, max_size=40), LAST, st.lists(STEP, max_size=12))
@scenario
async def test_every_request_has_one_end_with_its_own_rows_and_the_books_balance(
    options, steps, last, later
):
    model = Model(**options)
    for step in steps:
        await model.step(step)
    await model.end(last)
    for step in later:
        await model.step(step)
    await model.bench.release_all()
    model.check()
    model.check_end()
    model.batcher.close()
    assert model.bench.closes == [1] * options["slots"]
