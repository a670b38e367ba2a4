"""The options of `roundhouse bench`, and the traffic phases that they describe."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path

from roundhouse.errors import RoundhouseError

MINUTE = 60.0
MAX_RATE = 100_000.0
"""Users, or requests a second: requests that are due and unanswered are kept in memory."""
DEFAULT_SECONDS = 30.0
DEFAULT_USERS = 8


class Loop(StrEnum):
    """Open: a clock decides when a request is sent. Closed: the answer to the one before does."""

    open = "open"
    closed = "closed"


class Arrivals(StrEnum):
    """Spacing of an open loop's requests: a Poisson process, or even."""

    poisson = "poisson"
    even = "even"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase of load: `start` users, or requests a second, and `spawn` more each minute."""

    name: str
    loop: Loop
    start: float
    seconds: float
    spawn: float = 0.0
    requests: int | None = None
    """Requests after which nothing more is sent; None: only the time counts."""

    def moment(self, count: float) -> float:
        """Return seconds into an open loop's phase by which `count` requests are due, or inf."""
        # Not the textbook's root, which divides by the growth: without any it is 0 / 0.
        growth = self.spawn / MINUTE
        twice_the_mean_rate = self.start + math.sqrt(self.start**2 + 2 * growth * count)
        return 2 * count / twice_the_mean_rate if twice_the_mean_rate > 0 else math.inf


def closed_phase(name: str, users: int, seconds: float, requests: int | None = None) -> Phase:
    """Return users who each wait for an answer before the next request."""
    return Phase(name=name, loop=Loop.closed, start=users, seconds=seconds, requests=requests)


@dataclass(frozen=True, kw_only=True)
class LatencyStop:
    """Ends the load when a percentile of the newest answers is above a limit."""

    percentile: float
    milliseconds: float

    def __str__(self) -> str:
        return f"p{self.percentile:g} above {self.milliseconds:g} ms"


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Options of one load test, named as the command's flags; None means not given."""

    endpoint: str | None = None
    env: str | None = None
    model: str | None = None
    url: str | None = None
    closed_loop: bool = False
    rate: float | None = None
    users: int | None = None
    spawn: float | None = None
    seconds: float | None = None
    phase: tuple[str, ...] = ()
    slo: float | None = None
    """p99 in milliseconds."""
    stop: str | None = None
    max_requests: int | None = None
    first_rate: float | None = None
    step_seconds: float = 10.0
    warm_up: float = 3.0
    input: Path | None = None
    texts_per_request: int = 1
    binary: bool | None = None
    arrivals: Arrivals = Arrivals.poisson
    connections: int = 512
    timeout: float = 60.0
    expected_interval: float | None = None
    """Milliseconds."""
    seed: int = 1
    output: Path | None = None
    record: bool = False
    command: str = ""
    """The command line, for the report."""

    @property
    def loop(self) -> Loop | None:
        """Open or closed; None for a search for the saturation point."""
        if self.closed_loop:
            return Loop.closed
        return Loop.open if self.rate is not None or self.phase else None

    def require_consistent(self) -> None:
        """Raise RoundhouseError for options that exclude each other, or that are not finite."""
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, float) and not math.isfinite(value):
                flag = option.name.replace("_", "-")
                raise RoundhouseError(f"--{flag}: {value} is not allowed; give a finite number.")
        for conflict in (*self._load_conflicts(), *self._target_conflicts()):
            raise RoundhouseError(f"{conflict}.")

    def _load_conflicts(self) -> Iterator[str]:
        is_search, is_closed = self.loop is None, self.closed_loop
        if is_closed and self.rate is not None:
            yield "--closed-loop and --rate: a closed loop has no rate; give --users"
        if not is_closed and self.users is not None:
            yield "--users: belongs to --closed-loop; an open loop has --rate"
        if not is_closed and self.expected_interval is not None:
            yield "--expected-interval: belongs to --closed-loop; an open loop needs no correction"
        if self.phase and (self.rate, self.users, self.spawn, self.seconds) != (None,) * 4:
            flags = "--rate, --users, --spawn and --seconds"
            yield f"--phase: has start, spawn and seconds itself; leave {flags} out"
        if is_search and (self.spawn, self.seconds) != (None, None):
            owners = "--rate or --closed-loop; the search has --step-seconds"
            yield f"--spawn and --seconds: belong to {owners}"
        if is_search and (self.stop, self.max_requests) != (None, None):
            owners = "--rate, --closed-loop or --phase; the search stops by itself"
            yield f"--stop and --max-requests: belong to {owners}"
        if not is_search and self.first_rate is not None:
            yield "--first-rate: belongs to the search, which takes no phases"
        if self.first_rate is not None and self.first_rate > MAX_RATE:
            yield f"--first-rate: at most {MAX_RATE:,.0f} requests can be sent a second"

    def _target_conflicts(self) -> Iterator[str]:
        if (self.endpoint is None) == (self.url is None):
            yield "ENDPOINT or --url: give one of them"
        if self.endpoint is not None and self.env is None:
            yield "--env: is missing; an endpoint belongs to an environment"
        if self.url is not None and self.env is not None:
            yield "--env: belongs to an ENDPOINT; a server by its URL has none"
        if self.record and self.endpoint is None:
            yield "--record: needs an ENDPOINT; a server by its URL has no lock"
        if self.record and self.loop is not None:
            yield "--record: takes no load; it searches for the highest rate itself, then holds it"

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases; none for a search. Raises RoundhouseError."""
        loop = self.loop
        if loop is None:
            return ()
        if self.phase:
            return tuple(parse_phase(text, loop, n) for n, text in enumerate(self.phase, 1))
        if loop is Loop.closed:
            start = float(DEFAULT_USERS if self.users is None else self.users)
            flags = f"--users {start:.0f}"
        else:
            start = 0.0 if self.rate is None else self.rate
            flags = f"--rate {start:g}"
        seconds = DEFAULT_SECONDS if self.seconds is None else self.seconds
        spawn = 0.0 if self.spawn is None else self.spawn
        flags += f" --spawn {spawn:g} --seconds {seconds:g}" if spawn else ""
        phase = Phase(name="phase 1", loop=loop, start=start, seconds=seconds, spawn=spawn)
        return (_bounded(phase, flags),)


def parse_phase(text: str, loop: Loop, number: int) -> Phase:
    """Return the phase of `start=10,spawn=60,seconds=30`; spawn may be left out."""
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        values = {name.strip(): float(value) for name, _, value in pairs}
    except ValueError:
        values = {}
    usage = (
        f"--phase {text!r}: write start=NUMBER,spawn=NUMBER,seconds=NUMBER "
        f"({_unit(loop)} at its start, more a minute, length)"
    )
    is_plain = len(values) == len(pairs) and all(map(math.isfinite, values.values()))
    if not is_plain or not {"start", "seconds"} <= set(values) <= {"start", "spawn", "seconds"}:
        raise RoundhouseError(f"{usage}; spawn may be left out.")
    phase = Phase(
        name=f"phase {number}",
        loop=loop,
        start=values["start"],
        seconds=values["seconds"],
        spawn=values.get("spawn", 0.0),
    )
    if phase.seconds <= 0 or phase.start < 0 or phase.spawn < 0:
        raise RoundhouseError(f"{usage}; seconds above 0, the others 0 or more.")
    if loop is Loop.closed and phase.start != int(phase.start):
        raise RoundhouseError(f"{usage}; users are whole.")
    return _bounded(phase, f"--phase {text!r}")


def parse_latency_stop(text: str) -> LatencyStop:
    """Return the stop condition of `p99=200`, in milliseconds. Raises RoundhouseError."""
    name, _, value = text.partition("=")
    try:
        stop = LatencyStop(percentile=float(name.removeprefix("p")), milliseconds=float(value))
    except ValueError:
        stop = LatencyStop(percentile=0, milliseconds=0)
    in_range = 0 < stop.percentile < 100 and 0 < stop.milliseconds < math.inf
    if not name.startswith("p") or not in_range:
        raise RoundhouseError(
            f"--stop {text!r}: write a percentile and milliseconds, such as p99=200."
        )
    return stop


def _bounded(phase: Phase, flags: str) -> Phase:
    highest = phase.start + phase.spawn / MINUTE * phase.seconds
    if highest <= 0:
        raise RoundhouseError(
            f"{flags}: sends nothing; begin with more than 0, or add some each minute."
        )
    if not highest <= MAX_RATE:
        raise RoundhouseError(
            f"{flags}: comes to {highest:,.6g} {_unit(phase.loop)}; "
            f"at most {MAX_RATE:,.0f} can be sent."
        )
    return phase


def _unit(loop: Loop) -> str:
    return "requests a second" if loop is Loop.open else "users"
