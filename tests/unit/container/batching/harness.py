"""A batcher whose engine runs when the test says so, on an event loop with a clock of its own."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from container.server.batching.batch import Limits
from container.server.batching.batcher import Batcher
from container.server.engines.engine import Costs, LinearCosts
from container.server.types import Arrays

PROBE = (-1, -1)


class Row:
    """A row with its request's number and its index there."""

    def __init__(
        self, identity: tuple[int, int], length: int, *, poison: Any = None, kind: int = 0
    ) -> None:
        self.identity, self.length, self.poison, self.kind = identity, length, poison, kind

    def __len__(self) -> int:
        return self.length


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still unless it is moved."""

    now = 1000.0

    def time(self) -> float:
        return self.now


def scenario(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A coroutine test as one that runs on a loop of its own."""

    @wraps(test)
    def run(*arguments: Any, **keywords: Any) -> None:
        with asyncio.Runner(loop_factory=ClockLoop) as runner:
            runner.run(test(*arguments, **keywords))

    return run


async def settle() -> None:
    """Let the loop run every callback, and those that they add."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    while ready:
        await asyncio.sleep(0)


async def wait(seconds: float) -> None:
    """Let time pass."""
    asyncio.get_running_loop().now += seconds  # type: ignore[attr-defined]
    await settle()


class HeldThread:
    """Runs a work when the test says so."""

    def __init__(self) -> None:
        self.works: deque[Callable[[], None]] = deque()
        self.closed = 0

    def put(self, work: Callable[[], None]) -> None:
        assert not self.closed
        self.works.append(work)

    def close(self) -> None:
        self.closed += 1


class HeldEngine:
    """Answers each row's identity and length; fails on poison, or if `dead`."""

    def __init__(
        self,
        *,
        slots: int = 1,
        max_rows: int = 4,
        buckets: tuple[int, ...] | None = None,
        inline_rows: int = 0,
    ) -> None:
        self.slots, self.max_rows, self.inline_rows = slots, max_rows, inline_rows
        self.sequence_buckets = buckets
        self.prepared: list[list[Row]] = []
        self.ran: list[list[Row]] = []
        self.dead = False
        self.answer: Callable[[Sequence[Row]], Arrays] = identities
        self.on_prepare: Callable[[Sequence[Row]], None] = lambda rows: None

    def prepare(self, rows: Sequence[Row]) -> list[Row]:
        self.on_prepare(rows)
        self.prepared.append(list(rows))
        return list(rows)

    def run(self, prepared: list[Row], slot: int) -> Arrays:
        self.ran.append(prepared)
        if self.dead or any(row.poison for row in prepared):
            raise RuntimeError("poison")
        return self.answer(prepared)

    def warm_up(self) -> Costs:
        return LinearCosts()

    def warm_up_inline(self) -> None: ...


def identities(rows: Sequence[Row]) -> Arrays:
    """Two outputs: [rows, 2] and [rows]."""
    lengths = np.array([row.length for row in rows], np.int16)
    return np.array([row.identity for row in rows]), lengths


class Ledger:
    """An observer that keeps all records."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []
        self.over: list[float] = []
        self.drops: list[tuple[str, int]] = []
        self.failures: list[tuple[str, int]] = []

    def batch_ran(self, **facts: Any) -> None:
        self.batches.append(facts)

    def request_over(self, *, queue_seconds: float) -> None:
        self.over.append(queue_seconds)

    def record_drop(self, *, reason: str, rows: int) -> None:
        self.drops.append((reason, rows))

    def engine_failed(self, *, fault: Exception, rows: int) -> None:
        self.failures.append((str(fault), rows))


class Bench:
    """A batcher with its engine, its held threads, its ledger."""

    def __init__(
        self,
        engine: HeldEngine | None = None,
        *,
        max_tokens: int = 40,
        queue_rows: int = 1000,
        run_seconds: float = math.inf,
        **options: Any,
    ) -> None:
        self.engine = HeldEngine() if engine is None else engine
        self.threads = [HeldThread() for _ in range(self.engine.slots)]
        self.ledger = Ledger()
        self.batcher = Batcher(
            engine=self.engine,
            probe=[Row(PROBE, 1)],
            limits=Limits(max_tokens=max_tokens, queue_rows=queue_rows, run_seconds=run_seconds),
            threads=self.threads,  # type: ignore[arg-type]
            observer=self.ledger,  # type: ignore[arg-type]
            clock=lambda: asyncio.get_running_loop().time(),
            **options,
        )

    def submit(
        self,
        number: int,
        lengths: Sequence[int],
        *,
        poison: int | None = None,
        kind: int = 0,
        **options: Any,
    ) -> asyncio.Future[Arrays]:
        """Submit a request; `poison` is the index of a poisoned row."""
        rows = [
            Row((number, index), length, poison=index == poison, kind=kind)
            for index, length in enumerate(lengths)
        ]
        return self.batcher.submit(rows, **options)

    async def queue(
        self, number: int, lengths: Sequence[int], **options: Any
    ) -> asyncio.Future[Arrays]:
        """Submit a request in a turn of the event loop of its own."""
        future = self.submit(number, lengths, **options)
        await asyncio.sleep(0)
        return future

    async def release(self, slot: int = 0) -> None:
        """Run one batch of a slot and let the loop deliver it."""
        if self.threads[slot].works:
            self.threads[slot].works.popleft()()
        await settle()

    async def release_all(self) -> None:
        """Run until nothing is left to run."""
        while any(thread.works for thread in self.threads):
            for slot in range(self.engine.slots):
                await self.release(slot)

    @property
    def ran(self) -> list[list[tuple[int, int]]]:
        """Identities, by batch that ran."""
        return [[row.identity for row in batch] for batch in self.engine.ran]

    @property
    def sizes(self) -> list[int]:
        """The rows of every batch that left the queue."""
        return [len(batch) for batch in self.engine.prepared]

    @property
    def closes(self) -> list[int]:
        """How often every thread was closed."""
        return [thread.closed for thread in self.threads]


def expected(number: int, lengths: Sequence[int]) -> list[list[Any]]:
    """A request's answer as lists."""
    return [[[number, index] for index in range(len(lengths))], list(lengths)]


def read(future: asyncio.Future[Arrays]) -> list[list[Any]]:
    """A finished answer as lists."""
    return [output.tolist() for output in future.result()]
