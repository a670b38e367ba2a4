"""Values on their way to CloudWatch, gathered to few points by metric and slot of time."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

Dimensions = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One CloudWatch metric, whose values are gathered for `slot_seconds`."""

    account: str
    region: str
    namespace: str
    name: str
    unit: str
    dimensions: Dimensions
    slot_seconds: float = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The values of one metric in one slot; `at` is the time of the first of them."""

    metric: Metric
    at: float
    values: Weighted


class Buffer:
    """Takes values from any number of threads."""

    def __init__(self) -> None:
        self._slots: dict[tuple[Metric, int], tuple[float, Distribution]] = {}
        self._turn = threading.Lock()

    def add(self, metric: Metric, value: float, at: float) -> None:
        """Counts one value in the slot that `at` lies in."""
        key = (metric, int(at // metric.slot_seconds))
        with self._turn:
            if key not in self._slots:
                self._slots[key] = (at, Distribution())
            self._slots[key][1].add(value)

    def drain(self, now: float | None = None) -> Iterator[Gathered]:
        """Takes out every slot that has ended by `now`; without `now`, every slot."""
        with self._turn:
            ended = [
                (metric, slot)
                for metric, slot in self._slots
                if now is None or (slot + 1) * metric.slot_seconds <= now
            ]
            taken = [(metric, self._slots.pop((metric, slot))) for metric, slot in ended]
        for metric, (at, distribution) in taken:
            yield Gathered(metric=metric, at=at, values=distribution.weights())


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

    def weights(self) -> Weighted:
        """Return (value, count) in ascending order: the extremes, and the mean of each bin."""
        bins, counts = dict(self._bins), Counter[float]()
        for extreme in (self.low, self.high)[: self.count]:
            count, total = bins[_bin(extreme)]
            bins[_bin(extreme)] = (count - 1, total - extreme)
            counts[extreme] += 1
        for count, total in bins.values():
            if count:
                counts[min(max(total / count, self.low), self.high)] += count
        return tuple(sorted(counts.items()))


def _bin(value: float) -> tuple[bool, float]:
    """A bin's key: values of zero and below have one each."""
    return (False, value) if value <= 0 else (True, math.floor(math.log(value) * BINS_PER_E_FOLD))
