"""One phase as measured: the seconds of all load processes, put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from roundhouse.load_test.driving.orders import Second
from roundhouse.load_test.latencies import Latencies, enough
from roundhouse.load_test.traffic import LatencyStop, Phase

WINDOW_SECONDS = 3
"""Fewest newest seconds that a latency stop looks at."""


@dataclass(kw_only=True)
class Moment:
    """One second of a phase, all processes together; `latency` is of the answers that came in it."""

    second: int
    intended: int = 0
    sent: int = 0
    answered: int = 0
    faults: int = 0
    users: int = 0
    in_flight: int = 0
    waiting: int = 0
    cpu_shares: list[float] = field(default_factory=list)
    latency: Latencies = field(default_factory=Latencies)


@dataclass(kw_only=True)
class Measured:
    """A phase's counts and durations so far.

    `lag`: how late the tool itself came to sending; `service`: from sending on.
    """

    phase: Phase
    workers: int
    moments: dict[int, Moment] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    latency: Latencies = field(default_factory=Latencies)
    service: Latencies = field(default_factory=Latencies)
    lag: Latencies = field(default_factory=Latencies)
    corrected: Latencies = field(default_factory=Latencies)
    intended: int = 0
    sent: int = 0
    answered: int = 0
    reconnected: int = 0
    dropped: int = 0
    most_waiting: int = 0
    ended_early: str | None = None
    """Why it did not last as long as was asked for."""

    def add(self, said: Second) -> None:
        """Takes in one second of one process."""
        moment = self.moments.setdefault(said.second, Moment(second=said.second))
        moment.intended += said.intended
        moment.sent += said.sent
        moment.answered += said.answered
        moment.faults += sum(said.faults.values())
        moment.users += said.users
        moment.in_flight += said.in_flight
        moment.waiting += said.waiting
        moment.cpu_shares.append(said.cpu_share)
        self.faults.update(said.faults)
        self.intended += said.intended
        self.sent += said.sent
        self.answered += said.answered
        self.reconnected += said.reconnected
        self.most_waiting = max(self.most_waiting, moment.waiting)
        for kept, data in (
            (moment.latency, said.latency),
            (self.latency, said.latency),
            (self.service, said.service),
        ):
            _add(kept, data)
        _add(self.lag, said.lag)
        _add(self.corrected, said.corrected)

    @property
    def failed(self) -> int:
        """Requests without an answer of status 200."""
        return sum(self.faults.values())

    @property
    def seconds(self) -> float:
        """How long requests were sent."""
        if self.ended_early is None:
            return self.phase.seconds
        return min(self.phase.seconds, float(len(self.ordered)))

    @property
    def ordered(self) -> Sequence[Moment]:
        """Its seconds in order."""
        return [self.moments[each] for each in sorted(self.moments)]

    @property
    def within(self) -> Sequence[Moment]:
        """The seconds in which requests were sent, without those in which the last answers were
        waited for.
        """
        return [each for each in self.ordered if each.second < self.phase.seconds]

    @property
    def offered_per_second(self) -> float:
        """Requests that were to be sent."""
        return self.intended / self.seconds if self.seconds else 0.0

    @property
    def answered_per_second(self) -> float:
        """Answers while requests were sent."""
        return sum(each.answered for each in self.within) / self.seconds if self.seconds else 0.0

    @property
    def busiest_cpu_share(self) -> float:
        """Of one core, by the busiest load process, in the mean of the phase's seconds."""
        lists = [each.cpu_shares for each in self.within if len(each.cpu_shares) == self.workers]
        return max(
            (sum(column) / len(lists) for column in zip(*map(sorted, lists), strict=True)),
            default=0.0,
        )

    def newest(self, percentile: float) -> float | None:
        """A percentile, in milliseconds, of as few of the newest seconds as hold enough answers;
        None: there are too few.
        """
        kept = Latencies()
        for place, moment in enumerate(reversed(self.ordered), 1):
            _add(kept, moment.latency.encoded() if len(moment.latency) else b"")
            if place >= WINDOW_SECONDS and len(kept) >= enough(percentile):
                return kept.milliseconds(percentile)
        return None

    def is_above(self, stop: LatencyStop) -> bool:
        """Whether a latency stop's condition is met now."""
        found = self.newest(stop.percentile)
        return found is not None and found > stop.milliseconds


def _add(kept: Latencies, data: bytes) -> None:
    if data:
        kept.add(data)
