"""The waiting rows of one kind, by length."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Sequence
from heapq import heappush

from container.server.batching.job import Job

Place = tuple[int, int, Job]
"""A waiting row: its tag (lower runs first), its number among all rows ever, its request."""
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
