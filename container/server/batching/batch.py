"""A request in the batcher, and a batch: rows of several requests that run together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from container.server.observers import Drop
from container.server.types import Arrays, EngineRefused, RequestFault

Signature = list[tuple[tuple[int, ...], np.dtype[Any]]]
"""What rows look like: of every output one row's shape, and the type."""


Leave = Callable[["Job", Drop | None], None]
_future = asyncio.Future.__init__
"""`super()` and keywords would take as long again as all the rest of making a job (0.64 against
0.36 microseconds).
"""


class Job(asyncio.Future[Arrays]):
    """The future that the client awaits; however it ends, its rows leave the queue in the same
    moment.
    """

    __slots__ = (
        "_answers",
        "_leave",
        "_missing",
        "_signature",
        "base",
        "left_at",
        "queued",
        "rows",
        "size",
        "submitted_at",
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
        leave: Leave,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`base`: the number of its first row among all rows ever; `leave` is called once, when it
        ends.
        """
        _future(self, loop=loop)
        self.rows = rows
        self.base = base
        self.size = self.queued = len(rows)
        self.submitted_at = now
        self._leave = leave
        self._answers: Arrays | None = None

    def cancel(self, msg: Any = None) -> bool:
        """Ends without an answer because nobody waits for one."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._over("cancelled")
        return cancelled

    def fail(self, fault: RequestFault, reason: Drop) -> None:
        """Ends without an answer, unless it has ended."""
        if not self.done():
            self.set_exception(fault)
            self._over(reason)

    def finish(self, answers: Arrays) -> None:
        """Ends with the answers to all of its rows."""
        self.set_result(answers)
        self._over(None)

    def put(self, places: Sequence[int], answers: Arrays, like: Signature) -> None:
        """Takes the answers to some of its rows, given by ascending place; ends with the last."""
        if self._answers is None:
            self._answers = tuple([np.empty((self.size, *shape), dtype) for shape, dtype in like])
            self._missing, self._signature = self.size, like
        if like != self._signature:
            self.fail(EngineRefused(_differing(self._signature, like)), "refused")
            return
        contiguous = places[-1] - places[0] == len(places) - 1
        where = slice(places[0], places[-1] + 1) if contiguous else places
        for whole, answer in zip(self._answers, answers, strict=True):
            whole[where] = answer
        self._missing -= len(places)
        if self._missing == 0:
            self.finish(self._answers)

    def _over(self, reason: Drop | None) -> None:
        self._leave(self, reason)
        self.rows = ()
        self._answers = None


def signature(answers: Arrays) -> Signature:
    """What the rows of these answers look like."""
    return [(answer.shape[1:], answer.dtype) for answer in answers]


def _differing(one: Signature, other: Signature) -> str:
    """Why answers that look so unlike cannot be one request's."""
    written = [
        ", ".join([f"{dtype} {list(shape)}" for shape, dtype in each]) for each in (one, other)
    ]
    return (
        f"The engine's answers to the rows of this request do not fit together: {written[0]} for some rows, "
        f"{written[1]} for others; send such rows in requests of their own."
    )


Place = tuple[int, int, Job]
"""A waiting row: its tag (lower runs first), its number among all rows ever, its request."""


class Batch:
    """Rows that run together; each request's lie side by side, in order."""

    __slots__ = ("_parts", "_places", "padded_tokens", "queue_seconds", "rows", "tokens")

    def __init__(self, places: Sequence[Place], *, longest: int, now: float) -> None:
        """`places` by number; `longest`: what rows are padded to; `now`: the time at which they
        leave the queue.
        """
        self._places = places
        self.rows: list[Any] = [job.rows[number - job.base] for _, number, job in places]
        self.tokens = sum(map(len, self.rows))
        self.padded_tokens = max(1, longest) * len(places)
        self._parts = _parts(places)
        self.queue_seconds = now - self._parts[0][0].submitted_at
        for job, start, stop in self._parts:
            job.queued -= stop - start
            job.left_at = now

    def is_over(self) -> bool:
        """True when nobody waits for any of its answers."""
        return all(job.done() for job, _, _ in self._parts)

    def deliver(self, answers: Arrays) -> None:
        """Hands every request its rows' answers: a view of them where the whole request is here."""
        like = signature(answers)
        for job, start, stop in self._parts:
            if not job.done():
                own = tuple([answer[start:stop] for answer in answers])
                if stop - start == job.size:
                    job.finish(own)
                else:
                    job.put([place[1] - job.base for place in self._places[start:stop]], own, like)

    def alone(self) -> list[Alone]:
        """The batch request by request."""
        return [
            Alone(job, self._places[start:stop], self.rows[start:stop])
            for job, start, stop in self._parts
        ]


class Alone:
    """The rows of one request out of a batch that failed."""

    __slots__ = ("_places", "job", "rows")

    def __init__(self, job: Job, places: Sequence[Place], rows: Sequence[Any]) -> None:
        self.job = job
        self._places = places
        self.rows = rows

    def deliver(self, answers: Arrays) -> None:
        """Hands the request these rows' answers, unless it is over."""
        if self.job.done():
            return
        if len(self._places) == self.job.size:
            self.job.finish(answers)
        else:
            self.job.put(
                [place[1] - self.job.base for place in self._places], answers, signature(answers)
            )


def _parts(places: Sequence[Place]) -> list[tuple[Job, int, int]]:
    """Each request with the first and the end of its rows."""
    parts: list[tuple[Job, int, int]] = []
    start, job = 0, places[0][2]
    for position, place in enumerate(places):
        if place[2] is not job:
            parts.append((job, start, position))
            start, job = position, place[2]
    parts.append((job, start, len(places)))
    return parts
