"""What a scaling run measured, second by second, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A steady rate of requests, for so many seconds."""

    rate: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Second:
    """One second of a run.

    `per_instance` is invocations of each instance a minute; None where nothing was published.
    """

    at: int
    offered: float
    answered: int
    failed: int
    p99_ms: float | None
    per_instance: float | None
    current: int
    desired: int


@dataclass(frozen=True, kw_only=True)
class ScalingRun:
    """A whole run, and the scaling activities that it caused, oldest first."""

    target: float
    low: int
    high: int
    phases: tuple[Phase, ...]
    seconds: tuple[Second, ...]
    activities: tuple[Mapping[str, Any], ...]

    @property
    def most(self) -> int:
        """The most instances that answered at once."""
        return max(second.current for second in self.seconds)

    @property
    def last(self) -> int:
        """The instances at the end."""
        return self.seconds[-1].current

    @property
    def failed(self) -> int:
        """Requests that were not answered."""
        return sum(second.failed for second in self.seconds)

    @property
    def answers(self) -> int:
        """Requests that were answered."""
        return sum(second.answered for second in self.seconds)

    def begin(self, number: int) -> float:
        """Return when a phase begins, in seconds since the first."""
        return sum(phase.seconds for phase in self.phases[:number])

    def seconds_until(self, count: int, after: float) -> float | None:
        """Return the time from `after` until so many instances answered, or None."""
        times = (second.at for second in self.seconds if second.current == count)
        return next((at - after for at in times if at >= after), None)

    def as_json(self) -> dict[str, Any]:
        """Return everything, for the record."""
        return {
            "target_invocations_per_instance_a_minute": self.target,
            "capacity": [self.low, self.high],
            "phases": [asdict(phase) for phase in self.phases],
            "seconds": [asdict(second) for second in self.seconds],
            "activities": [dict(activity) for activity in self.activities],
        }


def offered_rate(phases: Sequence[Phase], at: float) -> float:
    """Return the rate at a time; zero after the last phase."""
    for phase in phases:
        if at < phase.seconds:
            return phase.rate
        at -= phase.seconds
    return 0.0
