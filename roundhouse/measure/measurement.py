"""Counts and times of one phase of load, and percentiles of them."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from roundhouse.measure.options import Loop, Phase
from roundhouse.table import NOTHING
from roundhouse.text import milliseconds, per_second

SAMPLES_BEYOND = 10
"""A percentile is shown when at least so many values lie beyond it: p99 of 1,000 values."""
PERCENTILES = (50, 90, 95, 99, 99.9)
COUNTS = (
    "seconds", "offered_per_second", "answered_per_second", "answered", "failed", "cpu_share",
    "machine_share", "reconnected", "ended_early",
)  # fmt: skip
MAX_ERROR_KINDS = 20
OTHER_ERRORS = "other errors"
ANSWERED_SHARE = 0.98
"""Share of the offered requests that must be answered while requests are sent."""
MIN_PILED_UP = 20


def samples_needed(percentile: float) -> int:
    """Return the number of values that a percentile needs."""
    return math.ceil(round(SAMPLES_BEYOND / (1 - percentile / 100), 6))


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile of values in any order; None of none.

    Linear between two values, as `vllm bench serve` and AIPerf have it too.
    """
    return float(np.percentile(values, percent)) if len(values) else None


def proven_percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile; None when too few values lie beyond it."""
    return percentile(values, percent) if len(values) >= samples_needed(percent) else None


def spread(values: Sequence[float]) -> dict[str, float | None] | None:
    """Return the mean, the percentiles that are proven, and the longest, for JSON; None of none."""
    if not len(values):
        return None
    points = {f"p{percent:g}": proven_percentile(values, percent) for percent in PERCENTILES}
    return {"mean": fmean(values), **points, "max": max(values)}


def percentiles_text(values: Sequence[float]) -> str:
    """Format `p50 3.20 ms, p95 …` of milliseconds; those without enough samples are left out."""
    known = [(percent, proven_percentile(values, percent)) for percent in (50, 95, 99)]
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


def _mean(shares: Sequence[float]) -> float:
    return sum(shares) / len(shares) if shares else 0.0


def _milliseconds() -> array[float]:
    return array("d")


@dataclass(kw_only=True)
class Second:
    """Counts of one second of a phase."""

    second: int
    offered: int = 0
    answered: int = 0
    errors: int = 0
    in_flight: int = 0
    cpu_share: float = 0.0
    machine_share: float = 0.0


@dataclass(kw_only=True)
class Measurement:
    """Counts and times of one phase, in milliseconds.

    `latency` counts from the moment a request was due, `service` from sending, `lag` is how late
    the tool itself came to sending.
    """

    phase: Phase
    seconds_seen: list[Second] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    latency: array[float] = field(default_factory=_milliseconds)
    service: array[float] = field(default_factory=_milliseconds)
    lag: array[float] = field(default_factory=_milliseconds)
    answered: int = 0
    reconnected: int = 0
    ended_early: str | None = None
    """The reason why it did not last as long as it should."""
    verdict: Verdict | None = None
    """Set where there is an SLO and the phase was run to its end."""
    percent: ClassVar[float] = 99.0
    """The percentile that an SLO is of."""

    def start_second(self, number: int) -> Second:
        """Begin a new second."""
        self.seconds_seen.append(Second(second=number))
        return self.seconds_seen[-1]

    def record_due(self, lag_seconds: float | None) -> None:
        """Count a request whose moment has come."""
        self.seconds_seen[-1].offered += 1
        if lag_seconds is not None:
            self.lag.append(1000 * lag_seconds)

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
        self.latency.append((now - due) * 1000)
        self.service.append((now - sent) * 1000)

    @property
    def times(self) -> Mapping[str, Sequence[float]]:
        """What an SLO limits, by name: latencies alone, which need none."""
        return {"": self.latency}

    @property
    def medians(self) -> Mapping[str, float | None]:
        """The medians of the times until now, by name; None of too few."""
        return {"": proven_percentile(self.latency, 50)}

    def has_slow_server(self, limit_ms: float) -> bool:
        """Return whether answers are late from the moment on at which requests were sent."""
        service = proven_percentile(self.service, self.percent)
        return service is not None and service > limit_ms

    @property
    def pile_up(self) -> str | None:
        """Why requests of an open loop piled up; None where they did not."""
        unanswered = self.offered - sum(second.answered for second in self.sending_seconds)
        allowed = max(MIN_PILED_UP, (1 - ANSWERED_SHARE) * self.offered)
        if self.phase.loop is not Loop.open or unanswered <= allowed:
            return None
        offered, answered = per_second(self.offered_per_second), self.answered_per_second
        return f"{per_second(answered)} of {offered} a second were answered: requests piled up"

    @property
    def recorded_times(self) -> Mapping[str, Sequence[float]]:
        """Every time that was taken, in milliseconds, by its name in JSON."""
        return {"latency": self.latency, "service": self.service, "lag": self.lag}

    def cells(self) -> dict[str, str]:
        """Return rates and times of a row of the table, by column."""
        is_open = self.phase.loop is Loop.open
        return {
            "offered/s": per_second(self.offered_per_second) if is_open else NOTHING,
            "answered/s": per_second(self.answered_per_second),
            **{f"p{p}": milliseconds(proven_percentile(self.latency, p)) for p in (50, 95, 99)},
        }

    def document(self) -> dict[str, Any]:
        """Return the phase for JSON; a percentile is None where there are too few samples."""
        outcome = None if self.verdict is None else self.verdict.outcome
        return {
            "name": self.phase.name,
            "loop": self.phase.loop,
            "load": self.phase.start,
            **{name: getattr(self, name) for name in COUNTS},
            "errors": dict(self.errors.most_common()),
            "outcome": outcome,
            "reason": None if self.verdict is None else self.verdict.reason,
            "times_ms": {name: spread(times) for name, times in self.recorded_times.items()},
        }

    @property
    def numbers(self) -> str:
        """What a line says of a phase that has ended."""
        is_open = self.phase.loop is Loop.open
        offered = f" of {per_second(self.offered_per_second)}" if is_open else ""
        answered = per_second(self.answered_per_second)
        return f"{answered}{offered} answers/s, {percentiles_text(self.latency)}"

    @property
    def errors_text(self) -> str:
        """How many requests failed, and why most of them did."""
        if not self.failed:
            return "no errors"
        worst, _ = self.errors.most_common(1)[0]
        return f"{self.failed:,} error{'' if self.failed == 1 else 's'} (most: {worst})"

    @property
    def offered(self) -> int:
        """Requests that were due."""
        return sum(second.offered for second in self.seconds_seen)

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
        return _mean([second.cpu_share for second in self.sending_seconds])

    @property
    def machine_share(self) -> float:
        """Share of all the machine's cores that was busy, in the mean; 0 where it is not known."""
        return _mean([second.machine_share for second in self.sending_seconds])
