"""The load that is asked for: phases as in Inference Recommender's TrafficPattern, and what stops
them early.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from roundhouse.errors import RoundhouseError

MINUTE = 60.0
MOST = 100_000.0
"""Users, or requests a second: what is due and unanswered is kept in memory."""


class Loop(StrEnum):
    """Who decides when a request is sent: a clock, or the answer to the one before."""

    open = "open"
    closed = "closed"


class Arrivals(StrEnum):
    """How an open loop's requests follow each other: as from many callers who know nothing of each
    other, or evenly.
    """

    poisson = "poisson"
    even = "even"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One piece of load: `start` users, or requests a second, and `spawn` more of them every
    minute.
    """

    name: str
    loop: Loop
    start: float
    seconds: float
    spawn: float = 0.0
    counted: bool = True
    """False: warm-up."""

    @property
    def highest(self) -> float:
        """Users, or requests a second, at its end."""
        return self.start + self.spawn / MINUTE * self.seconds

    def moment(self, count: float) -> float:
        """Seconds into an open loop's phase by which `count` requests are to be sent; infinite when
        they never are.
        """
        # Not the textbook's root, which divides by the growth: without any it is 0 / 0.
        twice_the_mean_rate = self.start + math.sqrt(
            self.start**2 + 2 * self.spawn / MINUTE * count
        )
        return 2 * count / twice_the_mean_rate if twice_the_mean_rate > 0 else math.inf

    def spawned(self, user: int) -> float:
        """Seconds into a closed loop's phase at which a user, counted from 0, comes; infinite when
        it never does.
        """
        late = user - math.floor(self.start) + 1
        if late <= 0:
            return 0.0
        return late * MINUTE / self.spawn if self.spawn > 0 else math.inf


@dataclass(frozen=True, kw_only=True)
class LatencyStop:
    """Ends the load when a percentile of the newest answers is above a limit."""

    percentile: float
    milliseconds: float

    def __str__(self) -> str:
        return f"p{self.percentile:g} above {self.milliseconds:g} ms"


def phase(text: str, loop: Loop, number: int) -> Phase:
    """Reads `start=10,spawn=60,seconds=30`; spawn may be left out. Raises RoundhouseError."""
    fields = _fields(text)
    wanted = f"--phase {text!r}: write start=NUMBER,spawn=NUMBER,seconds=NUMBER ({_unit(loop)} at its start, more a minute, length)"
    if not {"start", "seconds"} <= set(fields) <= {"start", "spawn", "seconds"}:
        raise RoundhouseError(f"{wanted}; spawn may be left out.")
    made = Phase(
        name=f"phase {number}",
        loop=loop,
        start=fields["start"],
        seconds=fields["seconds"],
        spawn=fields.get("spawn", 0.0),
    )
    if made.seconds <= 0 or made.start < 0 or made.spawn < 0:
        raise RoundhouseError(f"{wanted}; seconds above 0, the others 0 or more.")
    if loop is Loop.closed and made.start != int(made.start):
        raise RoundhouseError(f"{wanted}; users are whole.")
    return bounded(made, f"--phase {text!r}")


def bounded(made: Phase, said: str) -> Phase:
    """The phase, where it sends something, and no more than a load process can keep in mind.

    Raises RoundhouseError.
    """
    if made.highest <= 0:
        raise RoundhouseError(
            f"{said}: sends nothing; begin with more than 0, or add some each minute."
        )
    if not made.highest <= MOST:
        raise RoundhouseError(
            f"{said}: comes to {made.highest:,.6g} {_unit(made.loop)}; at most {MOST:,.0f} can be sent."
        )
    return made


def latency_stop(text: str) -> LatencyStop:
    """Reads `p99=200`, milliseconds. Raises RoundhouseError."""
    name, _, value = text.partition("=")
    try:
        found = LatencyStop(percentile=float(name.removeprefix("p")), milliseconds=float(value))
    except ValueError:
        found = LatencyStop(percentile=0, milliseconds=0)
    if (
        not name.startswith("p")
        or not 0 < found.percentile < 100
        or not 0 < found.milliseconds < math.inf
    ):
        raise RoundhouseError(
            f"--stop {text!r}: write a percentile and milliseconds, such as p99=200."
        )
    return found


def _fields(text: str) -> Mapping[str, float]:
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        found = {name.strip(): float(value) for name, _, value in pairs}
    except ValueError:
        return {}
    return found if all(map(math.isfinite, found.values())) and len(found) == len(pairs) else {}


def _unit(loop: Loop) -> str:
    return "requests a second" if loop is Loop.open else "users"
