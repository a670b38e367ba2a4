"""The result of a load test: what its report, its JSON and the recording of a capacity read."""

from __future__ import annotations

import datetime
import platform
from dataclasses import asdict, dataclass
from typing import Any

from engine_build import machine
from roundhouse.load_test.saturation import (
    Outcome,
)

Numbers = dict[str, float | None]
"""Milliseconds by percentile's name; None: too few samples."""


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """Where, when and by which Python something was measured."""

    machine: str
    date: str
    python: str


def circumstances() -> Circumstances:
    """Describe this machine, without its name, and this moment."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Circumstances(machine=machine.description(), date=now, python=platform.python_version())


@dataclass(frozen=True, kw_only=True)
class SecondResult:
    """One second; percentiles are of the answers that came in it."""

    second: int
    offered: int
    answered: int
    errors: int
    users: int
    in_flight: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """One phase: `latency_ms` counts from the moment of being due, `service_ms` from sending.

    They are the same in a closed loop, where `corrected_ms` is what a caller with the expected
    interval would have seen.
    """

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
    errors: dict[str, int]
    samples: int
    latency_ms: Numbers
    mean_ms: float | None
    longest_ms: float | None
    service_ms: Numbers
    corrected_ms: Numbers | None
    lag_ms: Numbers
    cpu_share: float
    max_waiting_for_connection: int
    reconnected: int
    ended_early: str | None
    outcome: str | None
    reason: str | None
    curve: tuple[tuple[float, float], ...]
    by_second: tuple[SecondResult, ...]


@dataclass(frozen=True, kw_only=True)
class SaturationResult:
    """The highest rate that held the SLO; `exact`: a rate a few percent higher missed it."""

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
    tool_limits: dict[str, str]
    """Reasons why the load tool itself was the limit, by phase."""
    inputs: dict[str, Any]
    settings: dict[str, Any]
    circumstances: Circumstances
    headline: str = ""

    @property
    def chief(self) -> PhaseResult | None:
        """The phase that the report is about: the saturation point, else the last with answers."""
        if self.saturation is not None and self.saturation.phase is not None:
            return self.phases[self.saturation.phase]
        return next((phase for phase in reversed(self.phases) if phase.answered), None)

    @property
    def chief_tool_limit(self) -> str | None:
        """Why the load tool took part in the numbers of the chief phase; None: it did not."""
        return None if self.chief is None else self.tool_limits.get(self.chief.name)

    @property
    def slo_missed(self) -> bool:
        """Whether a phase missed the SLO or, in a search, no rate held it."""
        if self.saturation is not None:
            return self.saturation.rate is None and not self.broken_off
        return any(phase.outcome == Outcome.missed for phase in self.phases)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)
