"""Durations kept as an HDR histogram: every value to three digits, at any count, and mergeable."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence

from hdrh.histogram import HdrHistogram

LONGEST_MICROSECONDS = 600_000_000
DIGITS = 3
ENOUGH_BEYOND = 10
"""A percentile is told when at least so many values lie beyond it: p99 of 1,000 values, p99.9 of
10,000.
"""
CURVE = (
    0.0,
    25.0,
    50.0,
    75.0,
    90.0,
    95.0,
    97.5,
    99.0,
    99.5,
    99.75,
    99.9,
    99.95,
    99.975,
    99.99,
    99.995,
    99.999,
)


def enough(percentile: float) -> int:
    """Values that a percentile needs."""
    return math.ceil(round(ENOUGH_BEYOND / (1 - percentile / 100), 6))


class Latencies:
    """Durations in microseconds, from 1 on; what is longer than ten minutes counts as ten minutes."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, LONGEST_MICROSECONDS, DIGITS)

    def __len__(self) -> int:
        return int(self._histogram.get_total_count())

    def record(self, seconds: float) -> None:
        """Keeps one duration."""
        self._histogram.record_value(_microseconds(seconds))

    def record_corrected(self, seconds: float, interval_seconds: float) -> None:
        """Keeps one duration and, when it is longer than the interval at which requests should have
        followed, those of the
        requests that it held up: one interval less each."""
        # Not record_corrected_value: it goes on below the interval, which HdrHistogram's own
        # definition does not.
        self.record(seconds)
        missing = seconds - interval_seconds
        while missing >= interval_seconds:
            self.record(missing)
            missing -= interval_seconds

    def add(self, encoded: bytes) -> None:
        """Adds what another process kept."""
        self._histogram.decode_and_add(base64.b64encode(encoded))

    def encoded(self) -> bytes:
        """All of it, compressed."""
        return base64.b64decode(self._histogram.encode())

    def clear(self) -> None:
        """Forgets everything."""
        if len(self):
            self._histogram.reset()

    def milliseconds(self, percentile: float) -> float | None:
        """A percentile; None when too few values lie beyond it."""
        if len(self) < enough(percentile):
            return None
        return self.unproven(percentile)

    def unproven(self, percentile: float) -> float:
        """A percentile of however few values; NaN of none."""
        return (
            float(self._histogram.get_value_at_percentile(percentile)) / 1000
            if len(self)
            else math.nan
        )

    @property
    def longest_ms(self) -> float | None:
        """The longest, to three digits; None of none."""
        return float(self._histogram.get_max_value()) / 1000 if len(self) else None

    @property
    def mean_ms(self) -> float | None:
        """The mean; None of none."""
        return float(self._histogram.get_mean_value()) / 1000 if len(self) else None

    def curve(self) -> tuple[tuple[float, float], ...]:
        """(percentile, milliseconds) as far as the values reach."""
        return tuple((each, self.unproven(each)) for each in CURVE if len(self) >= enough(each))


def merged(parts: Sequence[bytes]) -> Latencies:
    """What several processes, or seconds, kept."""
    result = Latencies()
    for part in parts:
        result.add(part)
    return result


def _microseconds(seconds: float) -> int:
    return min(max(round(seconds * 1e6), 1), LONGEST_MICROSECONDS)
