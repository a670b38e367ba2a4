"""Where servers are started, loaded and weighed.

One folder for logs and requests, one load generator.
"""

from __future__ import annotations

import contextlib
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.measure import Bar, Measure
from benchmarks.servers.running_server import Candidate, Running, running
from benchmarks.servers.wrk import Load, Wrk

Result = TypeVar("Result")
Round = Mapping[str, Result]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A median over rounds, and the lowest and highest round."""

    median: float
    low: float
    high: float


def rounds(
    candidates: Mapping[str, Callable[[], Result]],
    count: int,
    *,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> list[dict[str, Result]]:
    """Runs every candidate once a round, in an order drawn anew each time."""
    order, found = random.Random(seed), []
    for number in range(count):
        names = list(candidates)
        order.shuffle(names)
        results = {name: candidates[name]() for name in names}
        found.append(results)
        say(
            f"  round {number + 1} of {count}: "
            + ", ".join(f"{name} {_formatted(results[name])}" for name in sorted(results))
        )
    return found


def spread(values: Sequence[float]) -> Spread:
    """Median, lowest and highest of one value a round."""
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


def ratio(found: Sequence[Mapping[str, float]], above: str, below: str) -> Spread:
    """One candidate over another, paired by round."""
    return spread([one[above] / one[below] for one in found])


def _formatted(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, (int, float)) else str(value)


BUSY, BUSY_SECONDS, LONE_SECONDS, WARM_SECONDS = 64, 5, 4, 1
STARTS = 5
READY_SECONDS, MEMORY_MB = 1.0, 250.0
Check = Callable[[Running], None]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One candidate in one round.

    Rate, latencies and processor time of a request at 64 clients, latency at one.
    """

    rate: float
    busy_p50_ms: float
    busy_p99_ms: float
    busy_cpu_ms: float
    lone_p50_ms: float

    def __str__(self) -> str:
        busy = (
            f"{self.rate:,.0f}/s ({self.busy_p50_ms:.1f}/{self.busy_p99_ms:.1f} ms, "
            f"{self.busy_cpu_ms:.3f} ms of processor)"
        )
        return f"{busy}, one client {self.lone_p50_ms:.2f} ms"


@dataclass(frozen=True, kw_only=True)
class Starts:
    """What fresh starts of one server took.

    Seconds until /ping answers 200, and 10^6 bytes resident after load.
    """

    ready_seconds: tuple[float, ...]
    memory_mb: tuple[float, ...]

    def measures(self, name: str, command: str) -> list[Measure]:
        """Both, with their bars."""
        ready, most = spread(self.ready_seconds), max(self.memory_mb)
        memory = Spread(median=most, low=min(self.memory_mb), high=most)
        count = len(self.ready_seconds)
        return [
            spread_measure(
                f"{name}: /ping ready, median of {count} starts",
                ready,
                "s",
                command,
                at_most(READY_SECONDS),
            ),
            spread_measure(
                f"{name}: RSS after load, worst of {count} starts",
                memory,
                "MB",
                command,
                at_most(MEMORY_MB),
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class Harness:
    """`place` holds logs."""

    place: Path
    wrk: Wrk

    @contextlib.contextmanager
    def start(
        self, *candidates: Candidate, check: Check | None = None
    ) -> Iterator[dict[str, Running]]:
        """Every candidate, ready and checked, by name."""
        with contextlib.ExitStack() as stack:
            servers = {
                candidate.name: stack.enter_context(running(candidate, self.log(candidate)))
                for candidate in candidates
            }
            for server in servers.values():
                if check is not None:
                    check(server)
            yield servers

    def starts(
        self,
        candidate: Candidate,
        requests: Path,
        *,
        count: int = STARTS,
        check: Check | None = None,
    ) -> Starts:
        """Fresh starts of a server that has the machine to itself.

        A first one warms the disk and is checked.
        """
        with self.start(candidate, check=check):
            pass
        ready, memory = [], []
        for _ in range(count):
            with self.start(candidate) as servers:
                server = servers[candidate.name]
                ready.append(server.ready_seconds)
                self.load(server, requests, BUSY, 2)
                memory.append(server.memory_mb())
        return Starts(ready_seconds=tuple(ready), memory_mb=tuple(memory))

    def test(self, server: Running, requests: Path) -> Callable[[], Point]:
        """One candidate's part of a round."""

        def part() -> Point:
            self.load(server, requests, BUSY, WARM_SECONDS)
            before = server.cpu_seconds()
            busy = self.load(server, requests, BUSY, BUSY_SECONDS)
            cpu_ms = 1e3 * (server.cpu_seconds() - before) / busy.requests
            lone = self.load(server, requests, 1, LONE_SECONDS)
            return Point(
                rate=busy.rate,
                busy_p50_ms=busy.p50_ms,
                busy_p99_ms=busy.p99_ms,
                busy_cpu_ms=cpu_ms,
                lone_p50_ms=lone.p50_ms,
            )

        return part

    def load(self, server: Running, requests: Path, connections: int, seconds: float) -> Load:
        """One run of wrk. Raises ValueError when a request was not answered."""
        server.settle()
        load = self.wrk.load(
            requests, port=server.candidate.port, connections=connections, seconds=seconds
        )
        if not load.clean:
            name, log = server.candidate.name, self.log(server.candidate)
            raise ValueError(
                f"{name} left requests unanswered at {connections} clients: {load}; its log is "
                f"{log}"
            )
        return load

    def log(self, candidate: Candidate) -> Path:
        """Where a server's words go."""
        return self.place / "logs" / f"{candidate.name.replace(' ', '-')}.log"


def spread_measure(
    name: str, found: Spread, unit: str, command: str, bar: Bar | None = None
) -> Measure:
    """A measure of several rounds."""
    return Measure(
        name=name,
        value=found.median,
        unit=unit,
        command=command,
        bar=bar,
        low=found.low,
        high=found.high,
    )


def at_most(limit: float) -> Bar:
    """A bar."""
    return Bar(kind="at most", limit=limit)


def at_least(limit: float) -> Bar:
    """A bar."""
    return Bar(kind="at least", limit=limit)


def points(found: list[Point], words: str, command: str) -> list[Measure]:
    """A candidate's own numbers over the rounds."""
    return [
        spread_measure(
            f"{words}: {BUSY} clients",
            spread([result.rate for result in found]),
            "requests/s",
            command,
        ),
        spread_measure(
            f"{words}: {BUSY} clients, p50",
            spread([result.busy_p50_ms for result in found]),
            "ms",
            command,
        ),
        spread_measure(
            f"{words}: {BUSY} clients, p99",
            spread([result.busy_p99_ms for result in found]),
            "ms",
            command,
        ),
        spread_measure(
            f"{words}: {BUSY} clients, processor time",
            spread([result.busy_cpu_ms for result in found]),
            "ms/request",
            command,
        ),
        spread_measure(
            f"{words}: one client, p50",
            spread([result.lone_p50_ms for result in found]),
            "ms",
            command,
        ),
    ]
