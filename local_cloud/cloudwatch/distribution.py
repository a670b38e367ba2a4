"""Many values of one period as few weighted ones: count, sum, lowest and highest exact, percentiles
within half a percent.
"""

from __future__ import annotations

import math

BINS_PER_E_FOLD = 200
Weighted = tuple[tuple[float, float], ...]


class Distribution:
    """The values of one metric in one period, in bins half a percent wide."""

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self._bins: dict[tuple[bool, float], tuple[int, float]] = {}

    def add(self, value: float) -> None:
        """Counts one value."""
        self.low, self.high = min(self.low, value), max(self.high, value)
        key = _bin(value)
        count, total = self._bins.get(key, (0, 0.0))
        self._bins[key] = (count + 1, total + value)

    @property
    def count(self) -> int:
        """How many values were added."""
        return sum(count for count, _ in self._bins.values())

    def weighted(self) -> Weighted:
        """(value, how often) in ascending order: a bin's mean stands for its values, the extremes
        stand for themselves.
        """
        bins, found = dict(self._bins), dict[float, float]()
        for extreme in (self.low, self.high)[: self.count]:
            count, total = bins[_bin(extreme)]
            bins[_bin(extreme)] = (count - 1, total - extreme)
            found[extreme] = found.get(extreme, 0) + 1
        for count, total in bins.values():
            if count:
                mean = min(max(total / count, self.low), self.high)
                found[mean] = found.get(mean, 0) + count
        return tuple(sorted(found.items()))


def _bin(value: float) -> tuple[bool, float]:
    """A bin's key: values of zero and below have one each."""
    return (False, value) if value <= 0 else (True, math.floor(math.log(value) * BINS_PER_E_FOLD))
