"""The waiting rows of one kind, by length."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence

from container.server.batching.job import Job

Place = tuple[int, int, Job]
"""A waiting row: its tag (lower runs first), its number among all rows ever, its request."""


class Shelf:
    """A lane per length; a lane is ordered by turn and never empty."""

    __slots__ = ("kind", "lanes", "lengths")

    def __init__(self, kind: Hashable) -> None:
        self.kind = kind
        self.lanes: dict[int, list[Place]] = {}
        self.lengths: list[int] = []

    def add(self, length: int, place: Place) -> None:
        """Puts a row, numbered above all others, behind those whose turn comes first."""
        lane = self.lanes.get(length)
        if lane is None:
            self.lanes[length] = [place]
            insort(self.lengths, length)
        elif lane[-1][0] <= place[0]:
            lane.append(place)
        else:
            insort(lane, place)

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

    def remove(self, length: int) -> None:
        """Forgets a lane."""
        del self.lanes[length]
        del self.lengths[bisect_left(self.lengths, length)]
