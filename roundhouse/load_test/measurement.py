"""Measured latencies and counts of one phase of load."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hdrh.histogram import HdrHistogram

from engine_build.card.render import milliseconds
from roundhouse.load_test.options import Phase

LONGEST_MICROSECONDS = 600_000_000
DIGITS = 3
SAMPLES_BEYOND = 10
"""A percentile is shown when at least so many values lie beyond it: p99 of 1,000 values."""
WINDOW_SECONDS = 3
"""A latency stop looks at least at so many of the newest seconds."""
MAX_ERROR_KINDS = 20
OTHER_ERRORS = "other errors"


def samples_needed(percentile: float) -> int:
    """Return the number of values that a percentile needs."""
    return math.ceil(round(SAMPLES_BEYOND / (1 - percentile / 100), 6))


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile of values in any order; None of none.

    Linear between two values, as numpy, `vllm bench serve` and AIPerf have it.
    """
    ordered = sorted(values)
    return percentile_at(len(ordered), percent, ordered.__getitem__) if ordered else None


def percentile_at(count: int, percent: float, value_at: Callable[[int], float]) -> float:
    """Return a percentile of `count` values, of which `value_at` returns the n-th smallest."""
    place = percent / 100 * (count - 1)
    low = value_at(math.floor(place))
    return low + (value_at(math.ceil(place)) - low) * (place % 1)


def proven_percentile(milliseconds: Sequence[float], percent: float) -> float | None:
    """Return a percentile; None when too few values lie beyond it."""
    return percentile(milliseconds, percent) if is_proven(len(milliseconds), percent) else None


def is_proven(count: int, percent: float) -> bool:
    """Return whether enough of so many values lie beyond a percentile."""
    return count >= samples_needed(percent)


class Latencies:
    """An HDR histogram of durations, to three digits; above ten minutes counts as ten minutes."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, LONGEST_MICROSECONDS, DIGITS)

    def __len__(self) -> int:
        return int(self._histogram.get_total_count())

    def record(self, seconds: float) -> None:
        """Add one duration."""
        self._histogram.record_value(min(max(round(seconds * 1e6), 1), LONGEST_MICROSECONDS))

    def percentile(self, percentile: float) -> float | None:
        """Return a percentile in milliseconds; None when too few values lie beyond it."""
        return self.percentile_of_any(percentile) if is_proven(len(self), percentile) else None

    def percentile_of_any(self, percentile: float) -> float:
        """Return a percentile in milliseconds of however few values; NaN of none."""
        if not len(self):
            return math.nan
        return percentile_at(len(self), percentile, self._value_at)

    def _value_at(self, place: int) -> float:
        rank = 100 * (place + 1) / len(self)
        return float(self._histogram.get_value_at_percentile(rank)) / 1000

    @property
    def longest_ms(self) -> float | None:
        """The longest, to three digits; None of none."""
        return float(self._histogram.get_max_value()) / 1000 if len(self) else None

    @property
    def mean_ms(self) -> float | None:
        """The mean; None of none."""
        return float(self._histogram.get_mean_value()) / 1000 if len(self) else None


def percentiles_text(latencies: Latencies) -> str:
    """Format `p50 3.20 ms, p95 …`; those without enough samples are left out."""
    known = [(percentile, latencies.percentile(percentile)) for percentile in (50, 95, 99)]
    texts = [f"p{name} {milliseconds(value)}" for name, value in known if value is not None]
    return ", ".join(texts) if texts else "too few answers for a percentile"


class Outcome(StrEnum):
    """Result of a phase against the SLO."""

    held = "held"
    missed = "missed"
    unproven = "too few samples"
    tool = "tool's limit"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An outcome with its reason."""

    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What came: `fault` says why it is no answer; `content` is what the driver read of it."""

    fault: str | None = None
    content: object = None


EMPTY_ANSWER = Answer()


@dataclass(kw_only=True)
class Second:
    """Counts of one second of a phase, and the latencies of the answers that came in it."""

    second: int
    offered: int = 0
    answered: int = 0
    errors: int = 0
    users: int = 0
    in_flight: int = 0
    cpu_share: float = 0.0
    machine_share: float = 0.0
    milliseconds: list[float] = field(default_factory=list)

    def percentile(self, percentile: float) -> float | None:
        """Return a percentile in milliseconds; None when too few values lie beyond it."""
        return proven_percentile(self.milliseconds, percentile)


@dataclass(kw_only=True)
class Measurement:
    """Counts and latencies of one phase.

    `latency` counts from the moment a request was due, `service` from sending, `lag` is how late
    the tool itself came to sending.
    """

    phase: Phase
    seconds_seen: list[Second] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    latency: Latencies = field(default_factory=Latencies)
    service: Latencies = field(default_factory=Latencies)
    lag: Latencies = field(default_factory=Latencies)
    answered: int = 0
    reconnected: int = 0
    dropped: int = 0
    max_waiting: int = 0
    """Most requests that were due and waited for a connection."""
    ended_early: str | None = None
    """The reason why it did not last as long as it should."""
    verdict: Verdict | None = None
    """Set where there is an SLO and the phase was run to its end."""

    def start_second(self, number: int) -> Second:
        """Begin a new second."""
        self.seconds_seen.append(Second(second=number))
        return self.seconds_seen[-1]

    def record_due(self, lag_seconds: float | None) -> None:
        """Count a request whose moment has come."""
        self.seconds_seen[-1].offered += 1
        if lag_seconds is not None:
            self.lag.record(lag_seconds)

    def record_answer(
        self, due: float, sent: float, now: float, answer: Answer = EMPTY_ANSWER
    ) -> None:
        """Count an answer with status 200."""
        self.answered += 1
        self.seconds_seen[-1].answered += 1
        self._record_durations(due, sent, now)

    def record_error(self, reason: str) -> None:
        """Count a refused or failed request."""
        if reason not in self.errors and len(self.errors) >= MAX_ERROR_KINDS:
            reason = OTHER_ERRORS
        self.errors[reason] += 1
        self.seconds_seen[-1].errors += 1

    def record_unanswered(self, reason: str, due: float, sent: float, now: float) -> None:
        """Count a request that was given up; leaving out the slowest would flatter."""
        self.record_error(reason)
        self._record_durations(due, sent, now)

    def _record_durations(self, due: float, sent: float, now: float) -> None:
        self.latency.record(now - due)
        self.service.record(now - sent)
        self.seconds_seen[-1].milliseconds.append((now - due) * 1000)

    @property
    def offered(self) -> int:
        """Requests that were due."""
        return sum(second.offered for second in self.seconds_seen)

    @property
    def is_full(self) -> bool:
        """Whether as many requests were due as the phase has."""
        return self.phase.requests is not None and self.offered >= self.phase.requests

    @property
    def failed(self) -> int:
        """Requests without an answer of status 200."""
        return sum(self.errors.values())

    @property
    def seconds(self) -> float:
        """Length of the time in which requests were sent."""
        if self.ended_early is None:
            return self.phase.seconds
        return min(self.phase.seconds, float(len(self.seconds_seen)))

    @property
    def sending_seconds(self) -> Sequence[Second]:
        """The seconds in which requests were sent, without the wait for the last answers."""
        return [second for second in self.seconds_seen if second.second < self.phase.seconds]

    @property
    def offered_per_second(self) -> float:
        """Requests that were due."""
        return self.offered / self.seconds if self.seconds else 0.0

    @property
    def answered_per_second(self) -> float:
        """Answers while requests were sent."""
        answered = sum(second.answered for second in self.sending_seconds)
        return answered / self.seconds if self.seconds else 0.0

    @property
    def cpu_share(self) -> float:
        """Share of one core that the load tool used, in the mean."""
        shares = [second.cpu_share for second in self.sending_seconds]
        return sum(shares) / len(shares) if shares else 0.0

    @property
    def machine_share(self) -> float:
        """Share of all the machine's cores that was busy, in the mean; 0 where it is not known."""
        shares = [second.machine_share for second in self.sending_seconds]
        return sum(shares) / len(shares) if shares else 0.0

    def newest(self, percentile: float) -> float | None:
        """Return a percentile, in milliseconds, of the fewest newest seconds that prove one."""
        values: list[float] = []
        for count, second in enumerate(reversed(self.seconds_seen), 1):
            values += second.milliseconds
            if count >= WINDOW_SECONDS and len(values) >= samples_needed(percentile):
                return proven_percentile(values, percentile)
        return None
