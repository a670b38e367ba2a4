"""The batcher: runs what waits as soon as the engine is idle, and hands every row back to the request it came from."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from container.server.types import EngineRefused, QueueFull, RequestFault, Unavailable

Rows = Any
"""The answers of some rows: for texts an array with rows on axis 0; else whatever `join` makes of single rows' answers."""
BROKEN = "The engine fails on every request; this server waits to be replaced."
WINDOW = 4
"""How many full batches the batcher looks ahead for rows of like length."""


class Sized(Protocol):
    """A row: anything that has a length, which is what it costs."""

    def __len__(self) -> int: ...


Row = TypeVar("Row", bound=Sized)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one batch and the queue may hold; `max_tokens` counts padding."""

    max_rows: int
    max_tokens: int
    queue_rows: int


@dataclass(slots=True, eq=False)
class _Job(Generic[Row]):
    """One request inside the batcher."""

    rows: Sequence[Row]
    future: asyncio.Future[Rows]
    join: Callable[[Sequence[Any]], Rows]
    queued: int
    missing: int
    answers: list[Any] = field(default_factory=list)

    def put(self, index: int, answer: Any) -> None:
        """Keeps one answered row and, with the last, finishes."""
        if self.future.done():
            return
        if not self.answers:
            self.answers = [None] * len(self.rows)
        self.answers[index] = answer
        self.missing -= 1
        if self.missing == 0:
            self._finish()

    def _finish(self) -> None:
        try:
            self.future.set_result(self.join(self.answers))
        except ValueError as fault:
            self.fail(EngineRefused(f"The engine's answers to the rows of this request do not fit together: {fault}."))

    def fail(self, fault: RequestFault) -> None:
        """Finishes without an answer."""
        if not self.future.done():
            self.future.set_exception(fault)


_Place = tuple[_Job[Row], int]


def batch_positions(lengths: Sequence[int], *, max_rows: int, max_tokens: int) -> list[int]:
    """Which waiting rows run next, shortest first: the oldest (position 0) always, then those that cost the least padding."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    low = high = order.index(0)
    while high - low + 1 < max_rows:
        rows, longest = high - low + 1, lengths[order[high]]
        shorter = longest - lengths[order[low - 1]] if low > 0 else None
        longer = (lengths[order[high + 1]] - longest) * rows if high + 1 < len(order) else None
        if longer is not None and (rows + 1) * lengths[order[high + 1]] > max_tokens:
            longer = None
        if shorter is not None and (rows + 1) * longest > max_tokens:
            shorter = None
        if shorter is None and longer is None:
            break
        if longer is None or (shorter is not None and shorter <= longer):
            low -= 1
        else:
            high += 1
    return order[low : high + 1]


class Batcher(Generic[Row]):
    """A bounded queue before one engine thread; every method is called on the event loop."""

    def __init__(
        self,
        *,
        run: Callable[[Sequence[Row]], Sequence[Any]],
        probe: Sequence[Row],
        limits: Limits,
        thread: Executor,
        kind: Callable[[Row], Hashable] | None = None,
        join: Callable[[Sequence[Any]], Rows] = np.stack,
    ) -> None:
        """`kind`: only rows of one kind share a batch. `join` makes a request's answer of its rows' answers."""
        self._run = run
        self._kind = kind
        self._join = join
        self._probe = probe
        self._limits = limits
        self._thread = thread
        self._queue: deque[_Place[Row]] = deque()
        self._waiting = 0
        self._busy = False
        self.broken = False

    @property
    def waiting(self) -> int:
        """Rows that no batch holds yet."""
        return self._waiting

    def submit(self, rows: Sequence[Row]) -> asyncio.Future[Rows]:
        """The answers to come, one per row in order; cancelling it takes the rows out. Raises QueueFull, Unavailable."""
        if self.broken:
            raise Unavailable(BROKEN)
        if self._waiting + len(rows) > self._limits.queue_rows:
            limit = self._limits.queue_rows
            raise QueueFull(f"{self._waiting} rows wait already and at most {limit} may; try again in a second.")
        future: asyncio.Future[Rows] = asyncio.get_running_loop().create_future()
        job = _Job(rows=rows, future=future, join=self._join, queued=len(rows), missing=len(rows))
        future.add_done_callback(lambda _: self._forget(job))
        self._queue.extend((job, index) for index in range(len(rows)))
        self._waiting += len(rows)
        if not self._busy:
            self._dispatch()
        return future

    def _forget(self, job: _Job[Row]) -> None:
        """A finished, failed or cancelled request keeps no place in the queue."""
        self._waiting -= job.queued
        job.queued = 0

    def _dispatch(self) -> None:
        batch = self._next_batch()
        self._busy = bool(batch)
        if batch:
            landing = asyncio.get_running_loop().run_in_executor(self._thread, self._executed, batch)
            landing.add_done_callback(lambda done: self._landed(batch, done))

    def _next_batch(self) -> list[_Place[Row]]:
        """Takes the next batch out of the queue, dropping the rows of requests that are over."""
        window: list[_Place[Row]] = []
        while self._queue and len(window) < WINDOW * self._limits.max_rows:
            place = self._queue.popleft()
            if not place[0].future.done():
                window.append(place)
        if not window:
            return []
        positions = self._positions([job.rows[index] for job, index in window])
        taken = set(positions)
        self._queue.extendleft(window[position] for position in reversed(range(len(window))) if position not in taken)
        batch = [window[position] for position in positions]
        for job, _ in batch:
            job.queued -= 1
        self._waiting -= len(batch)
        return batch

    def _positions(self, rows: Sequence[Row]) -> list[int]:
        """Which rows of the window run next."""
        alike = self._alike(rows)
        lengths = [len(rows[place]) for place in alike]
        chosen = batch_positions(lengths, max_rows=self._limits.max_rows, max_tokens=self._limits.max_tokens)
        return [alike[position] for position in chosen]

    def _alike(self, rows: Sequence[Row]) -> Sequence[int]:
        """The places of the rows that are of the oldest one's kind."""
        if self._kind is None:
            return range(len(rows))
        first = self._kind(rows[0])
        return [place for place, row in enumerate(rows) if self._kind(row) == first]

    def _executed(self, batch: Sequence[_Place[Row]]) -> list[Any]:
        """Runs in the engine thread: an answer per row, `None` where the engine refuses the row's request alone."""
        try:
            return list(self._checked([job.rows[index] for job, index in batch]))
        except Exception as fault:
            return self._isolated(batch, fault)

    def _checked(self, rows: Sequence[Row]) -> Sequence[Any]:
        answers = self._run(rows)
        if len(answers) != len(rows):
            raise RuntimeError(f"the engine gave {len(answers)} rows for {len(rows)}")
        return answers

    def _isolated(self, batch: Sequence[_Place[Row]], fault: Exception) -> list[Any]:
        """Each request of a failed batch on its own; when none succeeds and the probe fails too, the engine is broken."""
        answers: list[Any] = [None] * len(batch)
        for job in {id(job): job for job, _ in batch}.values():
            places = [position for position, (other, _) in enumerate(batch) if other is job]
            try:
                for position, answer in zip(places, self._checked([job.rows[batch[place][1]] for place in places]), strict=True):
                    answers[position] = answer
            except Exception as alone:
                print(f"The engine refuses a request of {len(job.rows)} rows: {type(alone).__name__}: {alone}", flush=True)
        if all(answer is None for answer in answers):
            self._check_engine(fault)
        return answers

    def _check_engine(self, fault: Exception) -> None:
        try:
            self._checked(self._probe)
        except Exception:
            self.broken = True
            print(f"The engine fails on every request: {type(fault).__name__}: {fault}", flush=True)

    def _landed(self, batch: Sequence[_Place[Row]], done: asyncio.Future[list[Any]]) -> None:
        """Back on the event loop: answers go home, then the next batch leaves."""
        for (job, index), answer in zip(batch, done.result(), strict=True):
            if answer is not None:
                job.put(index, answer)
            elif self.broken:
                job.fail(Unavailable(BROKEN))
            else:
                job.fail(EngineRefused("The engine cannot run this request; others are not affected."))
        if self.broken:
            self._fail_waiting()
        self._dispatch()

    def _fail_waiting(self) -> None:
        for job, _ in self._queue:
            job.fail(Unavailable(BROKEN))
