"""The users of a recommendation job by the minute, and what its minutes say; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FLAT_SHARE = 0.05
"""Invocations that grow by less than this share, while users grow, are flat; AWS says no number."""
FLAT_WINDOWS = 2
DEFAULT_MINUTES = 8
"""How often a Default job doubles its users. Its traffic is not published."""
PERCENTILE = 0.95


@dataclass(frozen=True, kw_only=True)
class Ramp:
    """A part of the traffic: users at its begin, and how many more each minute."""

    users: int
    spawn_rate: float = 0.0
    seconds: float

    def users_at(self, second: float) -> int:
        """Return the users after so many seconds of it."""
        return self.users + math.floor(self.spawn_rate * second / 60 + 1e-9)


def ramps(config: Mapping[str, Any]) -> tuple[Ramp, ...]:
    """Return the traffic of an input config; without a pattern that of a Default job."""
    pattern = config.get("TrafficPattern")
    if pattern is None:
        return tuple(Ramp(users=2**minute, seconds=60) for minute in range(DEFAULT_MINUTES))
    if pattern["TrafficType"] == "STAIRS":
        stairs = pattern["Stairs"]
        steps = stairs["NumberOfSteps"]
        return tuple(
            Ramp(
                users=stairs["UsersPerStep"] * (step + 1),
                seconds=stairs["DurationInSeconds"] / steps,
            )
            for step in range(steps)
        )
    return tuple(
        Ramp(
            users=phase["InitialNumberOfUsers"],
            spawn_rate=phase["SpawnRate"],
            seconds=phase["DurationInSeconds"],
        )
        for phase in pattern["Phases"]
    )


def total_seconds(traffic: Sequence[Ramp]) -> float:
    """Return how long a traffic pattern takes on AWS."""
    return sum(ramp.seconds for ramp in traffic)


def users_at(traffic: Sequence[Ramp], second: float) -> int | None:
    """Return the users at a second of AWS's time; None once the traffic is over."""
    for ramp in traffic:
        if second < ramp.seconds:
            return ramp.users_at(second)
        second -= ramp.seconds
    return None


@dataclass(frozen=True, kw_only=True)
class Window:
    """What one minute of AWS's time saw: latencies in seconds of its answers, and the rest."""

    users: int
    seconds: float
    """Of real time."""
    latencies: tuple[float, ...]
    errors: int = 0
    cpu_percent: float | None = None
    memory_percent: float | None = None

    @property
    def a_minute(self) -> float:
        """Answers in sixty real seconds."""
        return len(self.latencies) * 60 / self.seconds

    @property
    def mean_seconds(self) -> float:
        """The mean latency."""
        return sum(self.latencies) / len(self.latencies)

    def percentile_seconds(self, share: float = PERCENTILE) -> float:
        """Return the latency that a share of the answers keeps."""
        ordered = sorted(self.latencies)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """The conditions that end a load before its traffic does."""

    max_invocations: int | None = None
    latency_ms: int | None = None
    flat_stops: bool = True

    def reason(self, windows: Sequence[Window]) -> str | None:
        """Return the condition that the newest window meets; None where it meets none."""
        newest = windows[-1]
        if self.max_invocations is not None and newest.a_minute >= self.max_invocations:
            return "MaxInvocations"
        if (
            self.latency_ms is not None
            and newest.latencies
            and newest.percentile_seconds() * 1000 > self.latency_ms
        ):
            return "ModelLatencyThresholds"
        return "FlatInvocations" if self.flat_stops and _is_flat(windows) else None


def stopping(conditions: Mapping[str, Any] | None) -> Stopping:
    """Return the stopping conditions of a request."""
    given = conditions or {}
    thresholds = given.get("ModelLatencyThresholds") or ()
    return Stopping(
        max_invocations=given.get("MaxInvocations"),
        latency_ms=thresholds[0]["ValueInMilliseconds"] if thresholds else None,
        flat_stops=given.get("FlatInvocations") != "Continue",
    )


def _is_flat(windows: Sequence[Window]) -> bool:
    """The newest windows, with more users than the best before them, are hardly above it."""
    newest, before = windows[-FLAT_WINDOWS:], windows[:-FLAT_WINDOWS]
    if not before:
        return False
    best = max(before, key=lambda window: window.a_minute)
    return all(
        window.users > best.users and window.a_minute < best.a_minute * (1 + FLAT_SHARE)
        for window in newest
    )


def plateau(windows: Sequence[Window]) -> Window | None:
    """Return the window where invocations first come near their most; None without an answer.

    Source: developer guide, "Recommendation results": a result's values are those of the moment
    when invocations first begin to plateau.
    """
    answered = [window for window in windows if window.latencies]
    most = max((window.a_minute for window in answered), default=0.0)
    return next((w for w in answered if w.a_minute >= most * (1 - FLAT_SHARE)), None)
