"""A request in the batcher, and a batch: rows of several requests that run together."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from container.server.types import Arrays, EngineRefused, RequestFault

Drop = Literal[
    "cancelled", "deadline", "queue_full", "too_large", "refused", "memory", "broken", "closing"
]
"""Why a request got no answer."""


class BatchObserver:
    """Records batches: this one nothing. Every request ends in one `request_over` or one drop."""

    def batch_ran(
        self, *, rows: int, tokens: int, padded_tokens: int, engine_seconds: float
    ) -> None:
        """Record a batch that ended."""

    def request_over(self, *, queue_seconds: float) -> None:
        """Record an answered request; its last row left the queue after `queue_seconds`."""

    def record_drop(self, *, reason: Drop, rows: int) -> None:
        """Record a request of so many rows that ends without an answer, or was not admitted."""

    def engine_failed(self, *, fault: Exception, rows: int) -> None:
        """Record a batch of so many rows on which the engine failed."""


Signature = list[tuple[tuple[int, ...], np.dtype[Any]]]
"""The shape of one row of every output, and its type."""
_future = asyncio.Future.__init__
"""`super()` and keywords would double the time of making a job (0.64 against 0.36 µs)."""


class Job(asyncio.Future[Arrays]):
    """A request, the future that its client awaits; its rows leave the queue when it ends."""

    __slots__ = (
        "_answers",
        "_missing",
        "_on_end",
        "_signature",
        "base",
        "left_at",
        "queued",
        "rows",
        "size",
        "submitted_at",
        "timer",
    )
    _missing: int
    _signature: Signature
    left_at: float
    """When its latest row left the queue."""

    def __init__(
        self,
        rows: Sequence[Any],
        base: int,
        now: float,
        on_end: Callable[[Job, Drop | None], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`base`: the number of its first row among all rows ever."""
        _future(self, loop=loop)
        self.rows = rows
        self.base = base
        self.size = self.queued = len(rows)
        self.submitted_at = now
        self._on_end = on_end
        self._answers: Arrays | None = None
        self.timer: asyncio.TimerHandle | None = None
        """Of its deadline."""

    def cancel(self, msg: Any = None) -> bool:
        """End the request without an answer, because its client left."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._end("cancelled")
        return cancelled

    def fail(self, fault: RequestFault, reason: Drop) -> None:
        """End the request with a fault, unless it has ended."""
        if not self.done():
            self.set_exception(fault)
            self._end(reason)

    def finish(self, answers: Arrays) -> None:
        """End the request with the answers to all of its rows."""
        self.set_result(answers)
        self._end(None)

    def put(self, queued_rows: Sequence[int], answers: Arrays, row_signature: Signature) -> None:
        """Store the answers to some of its rows, ascending; the last ones end the request."""
        if self._answers is None:
            self._answers = tuple(
                [np.empty((self.size, *shape), dtype) for shape, dtype in row_signature]
            )
            self._missing, self._signature = self.size, row_signature
        if row_signature != self._signature:
            self.fail(EngineRefused(_mismatch(self._signature, row_signature)), "refused")
            return
        contiguous = queued_rows[-1] - queued_rows[0] == len(queued_rows) - 1
        where = slice(queued_rows[0], queued_rows[-1] + 1) if contiguous else queued_rows
        for whole, answer in zip(self._answers, answers, strict=True):
            whole[where] = answer
        self._missing -= len(queued_rows)
        if self._missing == 0:
            self.finish(self._answers)

    def _end(self, reason: Drop | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self._on_end(self, reason)
        self.rows = ()
        self._answers = None


def signature(answers: Arrays) -> Signature:
    """Return, per output, the shape of one row and the type."""
    return [(answer.shape[1:], answer.dtype) for answer in answers]


def _mismatch(one: Signature, other: Signature) -> str:
    """Return why two batches' answers cannot be joined into one request's."""
    some, others = (
        ", ".join([f"{dtype} {list(shape)}" for shape, dtype in row]) for row in (one, other)
    )
    return (
        f"The engine's answers to the rows of this request do not fit together: {some} for some "
        f"rows, {others} for others; send such rows in requests of their own."
    )


QueuedRow = tuple[int, int, Job]
"""A waiting row: its tag (lower runs first), its number among all rows ever, its request."""


class Batch:
    """Rows that run together; the rows of one request are adjacent and in order."""

    __slots__ = ("_parts", "_queued_rows", "padded_tokens", "rows", "tokens")

    def __init__(self, queued_rows: Sequence[QueuedRow], *, longest: int, now: float) -> None:
        """`queued_rows` by number, which leave the queue `now` and are padded to `longest`."""
        self._queued_rows = queued_rows
        self.rows: list[Any] = [job.rows[number - job.base] for _, number, job in queued_rows]
        self.tokens = sum(map(len, self.rows))
        self.padded_tokens = max(1, longest) * len(queued_rows)
        self._parts = _parts(queued_rows)
        for job, start, stop in self._parts:
            job.queued -= stop - start
            job.left_at = now

    def is_over(self) -> bool:
        """True when every request of the batch has ended."""
        return all(job.done() for job, _, _ in self._parts)

    def deliver(self, answers: Arrays) -> None:
        """Give every request its rows' answers: a view of them where the whole request is here."""
        row_signature = signature(answers)
        for job, start, stop in self._parts:
            if not job.done():
                own = tuple([answer[start:stop] for answer in answers])
                if stop - start == job.size:
                    job.finish(own)
                else:
                    rows = [row[1] - job.base for row in self._queued_rows[start:stop]]
                    job.put(rows, own, row_signature)

    def request_parts(self) -> list[RequestPart]:
        """Return the batch request by request."""
        return [
            RequestPart(job, self._queued_rows[start:stop], self.rows[start:stop])
            for job, start, stop in self._parts
        ]


class RequestPart(NamedTuple):
    """The rows of one request in a batch that failed."""

    job: Job
    queued_rows: Sequence[QueuedRow]
    rows: Sequence[Any]

    def deliver(self, answers: Arrays) -> None:
        """Give the request these rows' answers, unless it has ended."""
        if self.job.done():
            return
        if len(self.rows) == self.job.size:
            self.job.finish(answers)
        else:
            rows = [row[1] - self.job.base for row in self.queued_rows]
            self.job.put(rows, answers, signature(answers))


def _parts(queued_rows: Sequence[QueuedRow]) -> list[tuple[Job, int, int]]:
    """Return each request with the first and the end of its rows."""
    parts: list[tuple[Job, int, int]] = []
    start, job = 0, queued_rows[0][2]
    for position, row in enumerate(queued_rows):
        if row[2] is not job:
            parts.append((job, start, position))
            start, job = position, row[2]
    parts.append((job, start, len(queued_rows)))
    return parts


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of one batch and of the queue; `max_tokens` counts padding."""

    max_tokens: int
    queue_rows: int
    run_seconds: float = math.inf
    """Seconds that one batch may run before the engine counts as broken, because it hangs."""
