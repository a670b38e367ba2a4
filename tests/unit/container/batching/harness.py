"""A batcher whose engine runs when the test says so.

On an event loop whose clock the test turns.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from container.server.batching.batch import Limits
from container.server.batching.batcher import Batcher
from container.server.engines.engine import Costs, LinearCosts
from container.server.types import Arrays

PROBE = (-1, -1)


class Row:
    """A row that knows who it is: its request and its place there."""

    def __init__(
        self, identity: tuple[int, int], length: int, *, poison: bool = False, kind: int = 0
    ) -> None:
        self.identity, self.length, self.poison, self.kind = identity, length, poison, kind

    def __len__(self) -> int:
        return self.length


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still unless it is moved."""

    now = 1000.0

    def time(self) -> float:
        return self.now


def run(scene: Coroutine[Any, Any, None]) -> None:
    """Runs a scene on a loop of its own."""
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(scene)


def scenario(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A coroutine test as one that runs on a loop of its own."""

    def scene() -> None:
        run(test())

    scene.__name__ = test.__name__
    return scene


async def settle() -> None:
    """Lets the loop deliver all that has landed, and what ran on it meanwhile."""
    for _ in range(24):
        await asyncio.sleep(0)


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
    """Answers each row's identity and length; raises for a batch that holds poison.

    `dead` raises for all.
    """

    def __init__(
        self,
        *,
        slots: int = 1,
        max_rows: int = 4,
        buckets: tuple[int, ...] | None = None,
        inline_rows: int = 0,
    ) -> None:
        self.slots, self.max_rows, self.sequence_buckets, self.inline_rows = (
            slots,
            max_rows,
            buckets,
            inline_rows,
        )
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

    def warm_up_inline(self) -> None:
        pass

    def close(self) -> None:
        pass

    def pad_rows(self, rows: Sequence[Row]) -> int:
        """What the longest row is padded to."""
        longest = max(len(row) for row in rows)
        return next(
            (bucket for bucket in self.sequence_buckets or () if bucket >= longest), longest
        )


def identities(rows: Sequence[Row]) -> Arrays:
    """Two outputs: [rows, 2] and [rows]."""
    return np.array([row.identity for row in rows]), np.array(
        [row.length for row in rows], np.int16
    )


class Ledger:
    """An observer that keeps all it hears."""

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
        self.limits = Limits(max_tokens=max_tokens, queue_rows=queue_rows, run_seconds=run_seconds)
        self.batcher = Batcher(
            engine=self.engine,
            probe=[Row(PROBE, 1)],
            limits=self.limits,
            threads=self.threads,
            observer=self.ledger,
            clock=lambda: asyncio.get_running_loop().time(),
            **options,
        )

    def ask(
        self,
        number: int,
        lengths: Sequence[int],
        *,
        poison: int | None = None,
        kind: int = 0,
        deadline: float | None = None,
    ) -> asyncio.Future[Arrays]:
        """Submits a request; `poison` is the place of a poisoned row."""
        rows = [
            Row((number, place), length, poison=place == poison, kind=kind)
            for place, length in enumerate(lengths)
        ]
        return self.batcher.submit(rows, deadline=deadline)

    async def asked(
        self, number: int, lengths: Sequence[int], **options: Any
    ) -> asyncio.Future[Arrays]:
        """Submits a request in a turn of the event loop that it has for itself."""
        future = self.ask(number, lengths, **options)
        await asyncio.sleep(0)
        return future

    async def release(self, slot: int = 0) -> None:
        """Runs one batch of a slot and lets the loop deliver it."""
        if self.threads[slot].works:
            self.threads[slot].works.popleft()()
        await settle()

    async def release_all(self) -> None:
        """Runs until nothing is left to run."""
        while any(thread.works for thread in self.threads):
            for slot in range(self.engine.slots):
                await self.release(slot)

    @property
    def ran(self) -> list[list[tuple[int, int]]]:
        """Identities, by batch that ran."""
        return [[row.identity for row in batch] for batch in self.engine.ran]


def expected(number: int, lengths: Sequence[int]) -> list[list[Any]]:
    """What a request's answer reads as."""
    return [[[number, place] for place in range(len(lengths))], list(lengths)]


def read(future: asyncio.Future[Arrays]) -> list[list[Any]]:
    """A finished answer as lists."""
    return [output.tolist() for output in future.result()]
