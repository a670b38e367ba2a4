"""Values on their way to CloudWatch, gathered to few points by metric and slot of time."""

from __future__ import annotations

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
    """How often each value of one metric came in one slot; `at` is the time of the first."""

    metric: Metric
    at: float
    counts: Counter[float]


class Buffer:
    """Takes values from any number of threads, and keeps three digits of each."""

    def __init__(self) -> None:
        self._slots: dict[tuple[Metric, int], Gathered] = {}
        self._turn = threading.Lock()

    def add(self, metric: Metric, value: float, at: float) -> None:
        """Count one value in the slot that `at` lies in."""
        key = (metric, int(at // metric.slot_seconds))
        with self._turn:
            if key not in self._slots:
                self._slots[key] = Gathered(metric=metric, at=at, counts=Counter())
            # A load's latencies would be as many points as requests.
            self._slots[key].counts[float(f"{value:.3g}")] += 1

    def drain(self, now: float | None = None) -> Iterator[Gathered]:
        """Take out every slot that has ended by `now`; without `now`, every slot."""
        with self._turn:
            ended = [
                (metric, slot)
                for metric, slot in self._slots
                if now is None or (slot + 1) * metric.slot_seconds <= now
            ]
            taken = [self._slots.pop(key) for key in ended]
        yield from taken
