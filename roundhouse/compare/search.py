"""A search of a grid that measures some of its cells. Pure: what is measured is given to it.

It climbs as the quick mode of Triton Model Analyzer does: a few cells spread within a radius of
the present one give a step along every ordered axis at once; where some hold the SLO and some do
not, or where steps bring no more, every neighbour of the best cell is measured, until none is
better; then those that differ along two axes, since a larger batch may need fewer instances. Cells
of one step are measured together, since each deployment takes minutes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Point = tuple[int, ...]
Score = tuple[bool, float]
"""Whether the SLO is held, and how well; of those that hold none, which is nearest to it."""
Measure = Callable[[Sequence[str]], Mapping[str, Score]]

RADIUS = 3
SPREAD = 3
"""Cells beside the present one that are known before a step is taken."""
GAINS = (0.09, 0.3, 1.0)
"""A gain above the first, for each value along an axis, is a step of one value, and so on."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Axes by the number of their values; `names`: the cell of a point, which several may share."""

    sizes: tuple[int, ...]
    is_ordered: tuple[bool, ...]
    names: Mapping[Point, str]

    def neighbours(self, home: Point) -> Iterator[Point]:
        """Yield the points beside one: a value lower or higher, or any other without an order."""
        for axis, (size, is_ordered) in enumerate(zip(self.sizes, self.is_ordered, strict=True)):
            for value in range(size):
                distance = abs(value - home[axis])
                if distance == 1 or (distance and not is_ordered):
                    yield (*home[:axis], value, *home[axis + 1 :])

    def diagonals(self, home: Point) -> Iterator[Point]:
        """Yield the neighbours of neighbours that differ along two axes."""
        points = (far for near in self.neighbours(home) for far in self.neighbours(near))
        for point in dict.fromkeys(points):
            if sum(a != b for a, b in zip(point, home, strict=True)) == 2:
                yield point

    def surroundings(self, home: Point) -> Iterator[Point]:
        """Yield the other points within the radius, the nearest first; values without order stay.

        Distances are Euclidean, of places on the axes.
        """
        spans = [
            range(max(0, place - RADIUS), min(size, place + RADIUS + 1)) if is_ordered else (place,)
            for place, size, is_ordered in zip(home, self.sizes, self.is_ordered, strict=True)
        ]
        points = [point for point in itertools.product(*spans) if math.dist(point, home) <= RADIUS]
        yield from sorted(points, key=lambda point: (math.dist(point, home), point))[1:]


@dataclass(kw_only=True)
class QuickSearch:
    """One search; the same scores give the same cells in the same order.

    `budget`: cells that are measured at most.
    """

    grid: Grid
    budget: int
    measure: Measure
    scores: dict[str, Score] = field(default_factory=dict)

    def run(self, start: Point) -> None:
        """Measure cells from a starting point on, until none beside the best is better."""
        home, best = None, self._take_steps(start)
        while best != home:
            home = best
            for around in (self.grid.neighbours, self.grid.diagonals):
                is_complete = self._know([home, *around(home)])
                best = self._best([p for p in (home, *around(home)) if self._is_known(p)])
                if best != home or not is_complete:
                    break

    def _take_steps(self, home: Point) -> Point:
        """Take steps by what lies around; return the best point that is known."""
        visited: list[Point] = []
        while home not in visited and self._know([home, *self._spread(home)]):
            if visited and self._score(home) < self._score(visited[-1]):
                break
            visited.append(home)
            known = [self._score(home), *(self._score(point) for point in self._known_around(home))]
            if len({holds for holds, _ in known}) > 1:
                break
            home = self._next(home)
        return self._best([point for point in self.grid.names if self._is_known(point)])

    def _know(self, points: Sequence[Point]) -> bool:
        """Measure what is not known; return False where the budget does not reach."""
        names = dict.fromkeys(self.grid.names[point] for point in points)
        wanted = [name for name in names if name not in self.scores]
        affordable = wanted[: self.budget - len(self.scores)]
        if affordable:
            self.scores.update(self.measure(affordable))
        return len(affordable) == len(wanted)

    def _spread(self, home: Point) -> list[Point]:
        """Return unknown points around one, those first whose values no known one has."""
        around = list(self.grid.surroundings(home))
        known = self._known_around(home)
        chosen: list[Point] = []
        while len(known) + len(chosen) < SPREAD:
            covered = [
                {point[axis] for point in (home, *known, *chosen)} for axis in range(len(home))
            ]
            left = [p for p in around if not self._is_known(p) and p not in chosen]
            if not left:
                break
            chosen.append(max(left, key=lambda point: _uncovered(point, covered)))
        return chosen

    def _next(self, home: Point) -> Point:
        """Return the point to which gains around one lead: itself, where they lead nowhere."""
        base = self._score(home)[1]
        result = []
        for axis, size in enumerate(self.grid.sizes):
            gain, distance = 0.0, 0
            for point in self._known_around(home):
                moved, value = point[axis] - home[axis], self._score(point)[1]
                if moved and math.isfinite(value) and math.isfinite(base) and base:
                    gain += (value - base) / abs(base) * (1 if moved > 0 else -1)
                    distance += abs(moved)
            slope = gain / distance if distance else 0.0
            steps = sum(abs(slope) > least for least in GAINS)
            moved_to = home[axis] + int(math.copysign(steps, slope))
            result.append(min(max(moved_to, 0), size - 1))
        return tuple(result)

    def _known_around(self, home: Point) -> list[Point]:
        return [point for point in self.grid.surroundings(home) if self._is_known(point)]

    def _is_known(self, point: Point) -> bool:
        return self.grid.names[point] in self.scores

    def _score(self, point: Point) -> Score:
        return self.scores[self.grid.names[point]]

    def _best(self, points: Sequence[Point]) -> Point:
        """Return the point with the best score; of equal ones the first, which takes least."""
        return max(points, key=self._score)


def _uncovered(point: Point, covered: Sequence[set[int]]) -> int:
    return sum(place not in places for place, places in zip(point, covered, strict=True))
