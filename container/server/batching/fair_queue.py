"""The rows that wait, by kind and length, and the row that runs next.

Start-time fair queueing in units of a batch. A request's n-th batchful of rows is tagged n units
after the virtual time at which the request came; the lowest tag is next, of equal ones the oldest.
The virtual time follows the tags that run, less than a unit ahead of them. So before a new request
comes at most one batchful of every request that waits, however many rows those have; and because
the virtual time moves on with every batch, no stream of newcomers keeps a tag from its turn.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Sequence
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, NamedTuple

from container.server.batching.batch import Job, QueuedRow
from container.server.batching.selection import BatchLimits, Pick

UNIT = 4
"""Virtual time of one full batch, in steps."""
_second = itemgetter(1)
QueueHead = tuple[int, int, int, "LengthQueues"]
"""A queue's first row, now or earlier: its tag, its number, its length, its kind's queues."""


class Head(NamedTuple):
    """The row that runs next: its kind's queues, its length's position, and the row."""

    queues: LengthQueues
    head_at: int
    row: QueuedRow


class FairQueue:
    """Rows that wait for a batch.

    Rows of requests that have ended are removed lazily, before they outnumber the others.
    """

    def __init__(
        self,
        *,
        limits: BatchLimits,
        buckets: Sequence[int] | None = None,
        kind: Callable[[Any], Hashable] | None = None,
    ) -> None:
        """`buckets`: what rows are padded to, ascending; rows of one `kind` share a batch."""
        self._batch_limits = limits
        self._kind = kind
        self._padded: Sequence[int] = ()
        """By length: what it is padded to."""
        if buckets is not None:
            self._padded = [
                buckets[bisect_left(buckets, length)] for length in range(buckets[-1] + 1)
            ]
        self._kinds: dict[Hashable, LengthQueues] = {}
        self._heads: list[QueueHead] = []
        """A heap of the first row of every length's queue, so that finding the next row is cheap.

        It also holds rows that were first and ran in another row's batch, until they come up.
        """
        self._virtual_time = 0
        self.live = 0
        """Rows that wait."""
        self.dead = 0
        """Rows of requests that are over, not yet swept out."""

    def add(self, job: Job) -> None:
        """Queue all rows of a new request, numbered from its `base`."""
        self.live += job.size
        padded, known, kind = self._padded, len(self._padded), self._kind
        if job.size == 1 and kind is None:  # the same as below, in a third of the time
            row = (self._virtual_time, job.base, job)
            self._queues_of(None).add(self.padded_length(job.rows[0]), row)
            return
        lengths = [padded[length] if length < known else length for length in map(len, job.rows)]
        tags = self._tags(lengths)
        if kind is None:
            self._queues_of(None).extend(lengths, tags, job)
            return
        for number, length, tag in zip(range(job.size), lengths, tags, strict=True):
            self._queues_of(kind(job.rows[number])).add(length, (tag, job.base + number, job))

    def padded_length(self, row: Any) -> int:
        """Return the length that a row is padded to, in a batch of its own."""
        length = len(row)
        return self._padded[length] if length < len(self._padded) else length

    def remove(self, job: Job) -> None:
        """Release what an ended request holds of the queue."""
        self.live -= job.queued
        self.dead += job.queued
        job.queued = 0
        if self.dead > self.live:
            self._sweep()

    def head(self) -> Head:
        """Return the row that runs next. Raises IndexError when none waits."""
        while True:
            _, number, length, queues = self._heads[0]
            rows_waiting = queues.queues.get(length)
            if rows_waiting is not None and rows_waiting[0][1] == number:
                if not rows_waiting[0][2].done():
                    break
                self._drop_dead(queues, length)
            heappop(self._heads)
        if self.dead:
            for other in list(queues.lengths):
                self._drop_dead(queues, other)
        return Head(queues, bisect_left(queues.lengths, length), rows_waiting[0])

    def count(self, queues: LengthQueues, length: int, before: float = math.inf) -> int:
        """Return how many rows of a length, numbered below `before`, wait; at most a full batch."""
        rows_waiting = queues.queues[length]
        if self.dead:
            rows = self._living_rows(rows_waiting)
        else:
            rows = min(len(rows_waiting), self._batch_limits.max_rows)
        if not rows or rows_waiting[rows - 1][1] < before:
            return rows
        return next(index for index, row in enumerate(rows_waiting) if row[1] >= before)

    def take(self, head: Head, picks: Sequence[Pick]) -> list[QueuedRow]:
        """Remove counted rows from the queue and return them: each request's together, in order."""
        queued_rows: list[QueuedRow] = []
        for length, rows in picks:
            queued_rows += head.queues.queues[length][:rows]
            self._cut(head.queues, length, rows)
        tag = head.row[0]
        self._virtual_time = max(tag, min(self._virtual_time + 1, tag + UNIT - 1))
        self.live -= len(queued_rows)
        if self.dead > self.live:
            self._sweep()
        queued_rows.sort(key=_second)
        return queued_rows

    def jobs(self) -> set[Job]:
        """Return every request that has a row in the queue."""
        return {
            job
            for queues in self._kinds.values()
            for rows_waiting in queues.queues.values()
            for _, _, job in rows_waiting
            if not job.done()
        }

    def _queues_of(self, kind: Hashable) -> LengthQueues:
        queues = self._kinds.get(kind)
        if queues is None:
            queues = self._kinds[kind] = LengthQueues(kind, self._heads)
        return queues

    def _tags(self, lengths: Sequence[int]) -> list[int]:
        """Return a tag per row: one unit more for every batch that the request's rows fill."""
        if len(lengths) <= self._batch_limits.rows(max(lengths)):
            return [self._virtual_time] * len(lengths)
        tags: list[int] = []
        tag, rows, longest = self._virtual_time, 0, 0
        for length in lengths:
            longest = max(longest, length)
            if rows == self._batch_limits.rows(longest):
                tag, rows, longest = tag + UNIT, 0, length
            rows += 1
            tags.append(tag)
        return tags

    def _living_rows(self, rows_waiting: list[QueuedRow]) -> int:
        """Remove ended requests' rows until a full batch comes first; return its rows."""
        living: list[QueuedRow] = []
        seen = 0
        while seen < len(rows_waiting) and len(living) < self._batch_limits.max_rows:
            if not rows_waiting[seen][2].done():
                living.append(rows_waiting[seen])
            seen += 1
        self.dead -= seen - len(living)
        rows_waiting[:seen] = living
        return len(living)

    def _drop_dead(self, queues: LengthQueues, length: int) -> None:
        """Remove the rows of ended requests from the front of a length's queue."""
        rows_waiting = queues.queues[length]
        living = (index for index, row in enumerate(rows_waiting) if not row[2].done())
        rows = next(living, len(rows_waiting))
        if rows:
            self.dead -= rows
            self._cut(queues, length, rows)

    def _cut(self, queues: LengthQueues, length: int, rows: int) -> None:
        queues.cut(length, rows)
        if not queues.queues:
            del self._kinds[queues.kind]

    def _sweep(self) -> None:
        """Remove every row of ended requests."""
        self._heads.clear()
        for kind, queues in list(self._kinds.items()):
            queues.sweep()
            if not queues.queues:
                del self._kinds[kind]
        heapify(self._heads)
        self.dead = 0


class LengthQueues:
    """The waiting rows of one kind: a queue per length, ordered by tag and never empty."""

    __slots__ = ("_heads", "kind", "lengths", "queues")

    def __init__(self, kind: Hashable, heads: list[QueueHead]) -> None:
        """`heads` is a heap to which every row that becomes the first of its queue is added."""
        self.kind = kind
        self._heads = heads
        self.queues: dict[int, list[QueuedRow]] = {}
        self.lengths: list[int] = []

    def add(self, length: int, row: QueuedRow) -> None:
        """Add a row, numbered above all others, behind the rows with the same or a lower tag."""
        rows_waiting = self.queues.get(length)
        if rows_waiting is None:
            self.queues[length] = [row]
            insort(self.lengths, length)
            heappush(self._heads, (row[0], row[1], length, self))
        elif rows_waiting[-1][0] <= row[0]:
            rows_waiting.append(row)
        else:
            insort(rows_waiting, row)
            if rows_waiting[0] is row:
                heappush(self._heads, (row[0], row[1], length, self))

    def extend(self, lengths: Sequence[int], tags: Sequence[int], job: Job) -> None:
        """Add a request's rows, numbered from its `base`."""
        queues, number = self.queues, job.base
        for length, tag in zip(lengths, tags, strict=True):
            rows_waiting = queues.get(length)
            if rows_waiting is not None and rows_waiting[-1][0] <= tag:
                rows_waiting.append((tag, number, job))
            else:
                self.add(length, (tag, number, job))
            number += 1

    def cut(self, length: int, rows: int) -> None:
        """Remove the first rows of a length's queue, and the queue when it is empty."""
        rows_waiting = self.queues[length]
        del rows_waiting[:rows]
        if rows_waiting:
            heappush(self._heads, (rows_waiting[0][0], rows_waiting[0][1], length, self))
        else:
            del self.queues[length]
            del self.lengths[bisect_left(self.lengths, length)]

    def sweep(self) -> None:
        """Remove every row of ended requests, and append the first rows to the emptied heap."""
        for length, rows_waiting in list(self.queues.items()):
            rows_waiting[:] = [row for row in rows_waiting if not row[2].done()]
            if rows_waiting:
                self._heads.append((rows_waiting[0][0], rows_waiting[0][1], length, self))
            else:
                del self.queues[length]
        self.lengths = sorted(self.queues)
