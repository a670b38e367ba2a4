"""What a load test came to, as plain values: the JSON report, and what the page shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

Numbers = dict[str, float | None]
"""Milliseconds by percentile's name; None: too few samples."""


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """Where, when and by what something was measured."""

    machine: str
    date: str
    python: str


@dataclass(frozen=True, kw_only=True)
class SecondResult:
    """One second; percentiles are of the answers that came in it."""

    second: int
    offered: int
    answered: int
    faults: int
    users: int
    in_flight: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """One phase. `latency_ms` counts from the intended moment of sending, `service_ms` from sending
    on; they are the same in a
    closed loop, where `corrected_ms` is what a caller with the expected interval would have
    seen."""

    name: str
    loop: str
    start: float
    spawn_per_minute: float
    seconds: float
    offered_per_second: float
    answered_per_second: float
    rows_per_second: float
    answered: int
    failed: int
    dropped: int
    faults: dict[str, int]
    samples: int
    latency_ms: Numbers
    mean_ms: float | None
    longest_ms: float | None
    service_ms: Numbers
    corrected_ms: Numbers | None
    lag_ms: Numbers
    load_processes: int
    cpu_share: float
    most_waiting_for_connection: int
    reconnected: int
    ended_early: str | None
    outcome: str | None
    reason: str | None
    curve: tuple[tuple[float, float], ...]
    by_second: tuple[SecondResult, ...]


@dataclass(frozen=True, kw_only=True)
class SaturationResult:
    """The highest rate that held the SLO; `exact`: the next rate tried, a few percent higher, did
    not.
    """

    rate: float | None
    phase: int | None
    lowest_missed: float | None
    exact: bool


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    """A load test, whole."""

    version: int
    subject: str
    kind: str
    slo_ms: float | None
    saturation: SaturationResult | None
    phases: tuple[PhaseResult, ...]
    stopped: str | None
    broken_off: bool
    tool_limits: tuple[str, ...]
    inputs: dict[str, Any]
    settings: dict[str, Any]
    circumstances: Circumstances
    headline: str = ""

    @property
    def chief(self) -> PhaseResult | None:
        """The phase that the report is about: the saturation point, else the last with answers."""
        if self.saturation is not None and self.saturation.phase is not None:
            return self.phases[self.saturation.phase]
        return next((each for each in reversed(self.phases) if each.answered), None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
