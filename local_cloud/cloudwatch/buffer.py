"""Values on their way to CloudWatch, gathered by metric and slot of time: a thousand requests a
second stay few points.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from local_cloud.cloudwatch.distribution import Distribution, Weighted

Dimensions = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One CloudWatch metric of one account and region; `slot_seconds` is how long its values are
    gathered.
    """

    account: str
    region: str
    namespace: str
    name: str
    unit: str
    dimensions: Dimensions
    slot_seconds: float = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The values of one metric in one slot; `at` is when the first of them came, in seconds since
    the epoch.
    """

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
            yield Gathered(metric=metric, at=at, values=distribution.weighted())
