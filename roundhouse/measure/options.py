"""The options of `roundhouse bench`, and the phases of load that they describe."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.text import per_second, quantity

MAX_RATE = 100_000.0
"""Users, or requests a second: requests that are due and unanswered are kept in memory."""
DEFAULT_SECONDS = 30.0
SEARCH_SECONDS = 180.0
"""Of a search with all that belongs to it."""


class Loop(StrEnum):
    """Open: a clock decides when a request is sent. Closed: the answer to the one before does."""

    open = "open"
    closed = "closed"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase of load: `start` users, or requests a second."""

    name: str
    loop: Loop
    start: float
    seconds: float

    @property
    def load(self) -> str:
        """The load, in words."""
        if self.loop is Loop.closed:
            return f"{quantity(int(self.start), 'request')} at once"
        return f"{per_second(self.start)} requests a second"


def closed_phase(name: str, users: int, seconds: float) -> Phase:
    """Return users who each wait for an answer before the next request."""
    return Phase(name=name, loop=Loop.closed, start=users, seconds=seconds)


def at_once(count: int) -> str:
    """Return the name of a phase with so many requests at once."""
    return f"{count} at once"


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """What the driver of requests needs: seconds until a request is given up, and the like."""

    connections: int = 512
    timeout: float = 60.0
    seed: int = 1


STREAMS = ClientOptions(connections=4096, timeout=480.0)


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Options of one load test, named as the command's flags; None means not given."""

    endpoint: str | None = None
    env: str | None = None
    model: str | None = None
    url: str | None = None
    rate: str | None = None
    """Requests a second: `10`."""
    users: str | None = None
    """Users at once, a phase for each number: `8` or `1,4,16`."""
    seconds: float | None = None
    """Of each phase, or of the whole search."""
    slo: str | None = None
    input: Path | None = None
    rows: int = 1
    record: bool = False
    command: str = ""
    """The command line, for the report."""
    warm_up: float = 3.0

    @property
    def is_search(self) -> bool:
        """Whether the highest load within the SLO is searched for: no load is given."""
        return self.rate is None and self.users is None

    @property
    def warm_up_seconds(self) -> float:
        """Length of the warm-up: at most that of a phase."""
        return self.warm_up if self.seconds is None else min(self.warm_up, self.seconds)

    @property
    def search_seconds(self) -> float:
        """Length of the search."""
        return SEARCH_SECONDS if self.seconds is None else self.seconds

    def require_consistent(self) -> None:
        """Raise UsageError for options that exclude each other, or that are not finite."""
        if self.seconds is not None and not 1 <= self.seconds < math.inf:
            raise UsageError(
                f"--seconds {self.seconds:g}: is not allowed; give a number from 1 on."
            )
        for conflict in self._conflicts():
            raise UsageError(f"{conflict}.")

    def _conflicts(self) -> Iterator[str]:
        if (self.endpoint is None) == (self.url is None):
            yield "ENDPOINT or --url: give one of them"
        if self.endpoint is not None and self.env is None:
            yield "--env: is missing; an endpoint belongs to an environment"
        if self.url is not None and self.env is not None:
            yield "--env: belongs to an ENDPOINT; a server by its URL has none"
        if self.rate is not None and self.users is not None:
            yield "--rate and --users: a load is open or closed; give one of them"
        if self.record and self.endpoint is None:
            yield "--record: needs an ENDPOINT; a server by its URL has no lock"
        if self.record and not self.is_search:
            yield "--record: takes no load; it searches for the highest itself, then holds it"

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases; none for a search. Raises UsageError."""
        seconds = DEFAULT_SECONDS if self.seconds is None else self.seconds
        if self.rate is not None:
            rate = parse_rate(self.rate)
            name = f"{rate:g} requests/s"
            return (Phase(name=name, loop=Loop.open, start=rate, seconds=seconds),)
        if self.users is None:
            return ()
        return tuple(closed_phase(at_once(n), n, seconds) for n in parse_users(self.users))


def parse_rate(text: str) -> float:
    """Return requests a second. Raises UsageError."""
    rate = _number(text)
    if rate is None or not 0 < rate <= MAX_RATE:
        raise UsageError(
            f"--rate {text}: give requests a second, above 0 and at most {MAX_RATE:,.0f}, such as "
            "100."
        )
    return rate


def parse_users(text: str) -> tuple[int, ...]:
    """Return the numbers of `1,4,16`. Raises UsageError."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) <= MAX_RATE for word in words):
        raise UsageError(
            f"--users {text}: give whole numbers from 1 to {MAX_RATE:,.0f}, with commas, such as "
            "1,4,16."
        )
    return tuple(map(int, words))


def parse_slo(text: str | None, count: int) -> tuple[float, ...]:
    """Return the milliseconds of `50`, or of `300:60` where the SLO has two limits; none of None.

    Raises RoundhouseError.
    """
    if text is None:
        return ()
    values = [_number(part) for part in text.split(":")]
    if len(values) != count or not all(values):
        form = "p99 in milliseconds, such as 50"
        if count == 2:
            form = "p95 to the first token and between tokens, in milliseconds, such as 300:60"
        raise RoundhouseError(f"--slo {text}: give the {form}.")
    return tuple(value for value in values if value is not None)


def _number(text: str) -> float | None:
    """Return a plain number that is finite; None for another text."""
    return float(text) if re.fullmatch(r"\s*[0-9]+(\.[0-9]*)?\s*", text) else None
