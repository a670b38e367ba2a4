"""What waits, by kind and length, and whose turn it is.

Start-time fair queueing in units of a batch. A request's n-th batchful of rows is tagged n units
after the virtual time at
which the request came; the lowest tag is next, of equal ones the oldest. The virtual time follows
the tags that run, less than
a unit ahead of them. So before a new request comes at most one batchful of every request that
waits, however many rows those
have; and because the virtual time moves on with every batch, no stream of newcomers keeps a tag
from its turn.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, NamedTuple

from container.server.batching.batch import Job, Place
from container.server.batching.selection import Pick, Room

UNIT = 4
"""Virtual time of one batchful: newcomers are told apart by so many steps of it."""
_second = itemgetter(1)


class Head(NamedTuple):
    """Where the row is whose turn it is: the first of its lane."""

    shelf: Shelf
    at: int
    place: Place


class FairQueue:
    """Rows that no batch holds yet.

    Rows of requests that are over leave lazily, before they outnumber the others.
    """

    def __init__(
        self,
        *,
        room: Room,
        buckets: Sequence[int] | None = None,
        kind: Callable[[Any], Hashable] | None = None,
    ) -> None:
        """`buckets`: lengths that rows are padded to, ascending; `kind`: only rows of one kind
        share a batch.
        """
        self._room = room
        self._kind = kind
        self._padded = () if buckets is None else _padded_lengths(buckets)
        self._shelves: dict[Hashable, Shelf] = {}
        self._fronts: list[Front] = []
        """A heap that holds the first row of every lane: whose turn it is takes no look at all
        lanes, which are many of tensors.

        It also holds rows that were first and ran in the company of others, until their own turn
        would have come.
        """
        self._virtual_time = 0
        self.live = 0
        """Rows that wait."""
        self.dead = 0
        """Rows of requests that are over, not yet swept out."""

    def add(self, job: Job) -> None:
        """Queues all rows of a new request, numbered from its `base`."""
        self.live += job.size
        padded, known = self._padded, len(self._padded)
        if job.size == 1 and self._kind is None:  # what the lines below do, in a third of the time
            length = len(job.rows[0])
            place = (self._virtual_time, job.base, job)
            self._shelf(None).add(padded[length] if length < known else length, place)
            return
        lengths = [padded[length] if length < known else length for length in map(len, job.rows)]
        if self._kind is None:
            self._shelf(None).extend(lengths, self._tags(lengths), job)
        else:
            self._add_by_kind(self._kind, lengths, self._tags(lengths), job)

    def leave(self, job: Job) -> None:
        """A request that is over frees what it holds of the queue."""
        self.live -= job.queued
        self.dead += job.queued
        job.queued = 0
        if self.dead > self.live:
            self._sweep()

    def head(self) -> Head:
        """The row whose turn it is. Raises IndexError when none waits."""
        while True:
            _, number, length, shelf = self._fronts[0]
            lane = shelf.lanes.get(length)
            if lane is not None and lane[0][1] == number:
                if not lane[0][2].done():
                    break
                self._drop_dead(shelf, length)
            heappop(self._fronts)
        if self.dead:
            for each in list(shelf.lengths):
                self._drop_dead(shelf, each)
        return Head(shelf, bisect_left(shelf.lengths, length), lane[0])

    def count(self, shelf: Shelf, length: int, before: float = math.inf) -> int:
        """A lane's first rows that are numbered below `before`; counting stops at a full batch, and
        they all wait.
        """
        lane = shelf.lanes[length]
        rows = self._living(lane) if self.dead else min(len(lane), self._room.max_rows)
        if not rows or lane[rows - 1][1] < before:
            return rows
        return next((at for at, place in enumerate(lane[:rows]) if place[1] >= before), rows)

    def take(self, head: Head, picks: Sequence[Pick]) -> list[Place]:
        """Takes rows that were counted out of the queue: each request's together, in order."""
        places: list[Place] = []
        for length, rows in picks:
            places += head.shelf.lanes[length][:rows]
            self._cut(head.shelf, length, rows)
        self._virtual_time = max(
            head.place[0], min(self._virtual_time + 1, head.place[0] + UNIT - 1)
        )
        self.live -= len(places)
        places.sort(key=_second)
        return places

    def jobs(self) -> set[Job]:
        """Every request that has a row in the queue."""
        return {job for lane in self._lanes() for _, _, job in lane if not job.done()}

    def _shelf(self, kind: Hashable) -> Shelf:
        shelf = self._shelves.get(kind)
        if shelf is None:
            shelf = self._shelves[kind] = Shelf(kind, self._fronts)
        return shelf

    def _add_by_kind(
        self, kind: Callable[[Any], Hashable], lengths: list[int], tags: list[int], job: Job
    ) -> None:
        for number, (row, length, tag) in enumerate(
            zip(job.rows, lengths, tags, strict=True), job.base
        ):
            self._shelf(kind(row)).add(length, (tag, number, job))

    def _tags(self, lengths: Sequence[int]) -> list[int]:
        """A tag per row: one unit more for every batch that the request's rows fill."""
        if len(lengths) <= self._room.rows(max(lengths)):
            return [self._virtual_time] * len(lengths)
        tags: list[int] = []
        tag, rows, longest = self._virtual_time, 0, 0
        for length in lengths:
            longest = max(longest, length)
            if rows == self._room.rows(longest):
                tag, rows, longest = tag + UNIT, 0, length
            rows += 1
            tags.append(tag)
        return tags

    def _living(self, lane: list[Place]) -> int:
        """Sweeps the lane's front until a full batch of living rows leads it; how many do."""
        living: list[Place] = []
        seen = 0
        while seen < len(lane) and len(living) < self._room.max_rows:
            if not lane[seen][2].done():
                living.append(lane[seen])
            seen += 1
        self.dead -= seen - len(living)
        lane[:seen] = living
        return len(living)

    def _drop_dead(self, shelf: Shelf, length: int) -> None:
        """Sweeps the front of a lane."""
        rows = shelf.dead_first(length)
        if rows:
            self.dead -= rows
            self._cut(shelf, length, rows)

    def _cut(self, shelf: Shelf, length: int, rows: int) -> None:
        shelf.cut(length, rows)
        if not shelf.lanes:
            del self._shelves[shelf.kind]

    def _sweep(self) -> None:
        for shelf in self._shelves.values():
            shelf.sweep()
        self._shelves = {kind: shelf for kind, shelf in self._shelves.items() if shelf.lanes}
        self.dead = 0
        self._fronts[:] = [front for shelf in self._shelves.values() for front in shelf.fronts()]
        heapify(self._fronts)

    def _lanes(self) -> Iterator[list[Place]]:
        return (lane for shelf in self._shelves.values() for lane in shelf.lanes.values())


def _padded_lengths(buckets: Sequence[int]) -> tuple[int, ...]:
    """By length: what it is padded to."""
    return tuple(buckets[bisect_left(buckets, length)] for length in range(buckets[-1] + 1))


Front = tuple[int, int, int, "Shelf"]
"""Where the first row of a lane is or was: its tag, its number, the lane's length, the shelf."""


class Shelf:
    """A lane per length; a lane is ordered by turn and never empty."""

    __slots__ = ("_fronts", "kind", "lanes", "lengths")

    def __init__(self, kind: Hashable, fronts: list[Front]) -> None:
        """`fronts`: a heap that hears of every row that becomes the first of its lane, and of none
        that ceases to be.
        """
        self.kind = kind
        self._fronts = fronts
        self.lanes: dict[int, list[Place]] = {}
        self.lengths: list[int] = []

    def add(self, length: int, place: Place) -> None:
        """Puts a row, numbered above all others, behind those whose turn comes first."""
        lane = self.lanes.get(length)
        if lane is None:
            self.lanes[length] = [place]
            insort(self.lengths, length)
            heappush(self._fronts, (place[0], place[1], length, self))
        elif lane[-1][0] <= place[0]:
            lane.append(place)
        else:
            insort(lane, place)
            if lane[0] is place:
                heappush(self._fronts, (place[0], place[1], length, self))

    def extend(self, lengths: Sequence[int], tags: Sequence[int], job: Job) -> None:
        """Adds a request's rows, numbered from its `base`."""
        lanes, number = self.lanes, job.base
        for length, tag in zip(lengths, tags, strict=True):
            lane = lanes.get(length)
            if lane is not None and lane[-1][0] <= tag:
                lane.append((tag, number, job))
            else:
                self.add(length, (tag, number, job))
            number += 1

    def cut(self, length: int, rows: int) -> None:
        """Drops a lane's first rows, and a lane of which nothing is left."""
        lane = self.lanes[length]
        del lane[:rows]
        if lane:
            heappush(self._fronts, (lane[0][0], lane[0][1], length, self))
        else:
            del self.lanes[length]
            del self.lengths[bisect_left(self.lengths, length)]

    def dead_first(self, length: int) -> int:
        """How many rows at a lane's front are of requests that are over."""
        lane = self.lanes[length]
        return next((place for place, row in enumerate(lane) if not row[2].done()), len(lane))

    def sweep(self) -> None:
        """Drops every row of a request that is over; tells no front."""
        self.lanes = {
            length: [place for place in lane if not place[2].done()]
            for length, lane in self.lanes.items()
        }
        self.lanes = {length: lane for length, lane in self.lanes.items() if lane}
        self.lengths = sorted(self.lanes)

    def fronts(self) -> Iterator[Front]:
        """The first row of every lane."""
        return ((lane[0][0], lane[0][1], length, self) for length, lane in self.lanes.items())
