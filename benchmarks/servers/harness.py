"""Starts servers, loads them in paired rounds, and turns the rounds into measures."""

from __future__ import annotations

import contextlib
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.measure import Bar, Measure, at_most, of_rounds
from benchmarks.servers.running_server import Candidate, Running, start_server
from benchmarks.servers.wrk import Load, Wrk

BUSY, BUSY_SECONDS, LONE_SECONDS, WARM_SECONDS = 64, 5, 4, 1
STARTS = 5
READY_BAR, MEMORY_BAR = at_most(1.0), at_most(250.0)
LOAD = f"wrk -t1 -c{BUSY} -d{BUSY_SECONDS}s on the servers' own two cores, paired rounds"
"""The load, as commands of measures describe it."""
Check = Callable[[Running], None]
Result = TypeVar("Result")
Round = Mapping[str, Any]
Row = tuple[str, str, Callable[[Any], float], Bar | None]
"""Name, unit, value of one round, bar."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One candidate in one round; processor time is that of one request at 64 clients."""

    rate: float
    busy_p50_ms: float
    busy_p99_ms: float
    busy_cpu_ms: float
    lone_p50_ms: float

    def __str__(self) -> str:
        return (
            f"{self.rate:,.0f}/s ({self.busy_p50_ms:.1f}/{self.busy_p99_ms:.1f} ms, "
            f"{self.busy_cpu_ms:.3f} ms of processor), one client {self.lone_p50_ms:.2f} ms"
        )


POINT = (
    ("rate", f"{BUSY} clients", "requests/s"),
    ("busy_p50_ms", f"{BUSY} clients, p50", "ms"),
    ("busy_p99_ms", f"{BUSY} clients, p99", "ms"),
    ("busy_cpu_ms", f"{BUSY} clients, processor time", "ms/request"),
    ("lone_p50_ms", "one client, p50", "ms"),
)
"""Attributes of a point, and their names and units in measures."""


def rounds(
    candidates: Mapping[str, Callable[[], Result]],
    count: int,
    *,
    say: Callable[[str], None] = print,
) -> list[dict[str, Result]]:
    """Run every candidate once a round, in an order drawn anew each time."""
    order, results = random.Random(0), []
    for number in range(count):
        names = list(candidates)
        order.shuffle(names)
        result = {name: candidates[name]() for name in names}
        results.append(result)
        texts = (f"{name} {_text(result[name])}" for name in sorted(result))
        say(f"  round {number + 1} of {count}: {', '.join(texts)}")
    return results


def _text(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, (int, float)) else str(value)


def round_measures(results: Sequence[Round], rows: Iterable[Row]) -> list[Measure]:
    """Return the measure of each row; a ratio of candidates is taken within a round."""
    return [
        of_rounds(name, [value(result) for result in results], unit, bar)
        for name, unit, value, bar in rows
    ]


def ratio(above: str, below: str, attribute: str = "rate") -> Callable[[Round], float]:
    """Return the value of one candidate's point over another's."""
    return lambda result: float(
        getattr(result[above], attribute) / getattr(result[below], attribute)
    )


def points(results: Sequence[Round], name: str, text: str) -> list[Measure]:
    """Return a candidate's own numbers over the rounds."""
    return [
        of_rounds(f"{text}: {words}", [getattr(result[name], field) for result in results], unit)
        for field, words, unit in POINT
    ]


def start_measures(
    name: str, ready_seconds: Sequence[float], memory_mb: Sequence[float]
) -> list[Measure]:
    """Return what fresh starts took: seconds until /ping answers 200, memory after load."""
    ready = f"{name}: /ping ready, median of {len(ready_seconds)} starts"
    memory = f"{name}: RSS after load, worst of {len(memory_mb)} starts"
    return [
        of_rounds(ready, ready_seconds, "s", READY_BAR, value=statistics.median),
        of_rounds(memory, memory_mb, "MB", MEMORY_BAR, value=max),
    ]


@dataclass(frozen=True, kw_only=True)
class Harness:
    """A folder for logs, and the load generator."""

    folder: Path
    wrk: Wrk

    @contextlib.contextmanager
    def start(
        self, *candidates: Candidate, check: Check | None = None
    ) -> Iterator[dict[str, Running]]:
        """Start all candidates; yield them by name once they are ready and checked."""
        with contextlib.ExitStack() as stack:
            servers = {
                one.name: stack.enter_context(start_server(one, self._log(one)))
                for one in candidates
            }
            if check is not None:
                for server in servers.values():
                    check(server)
            yield servers

    def starts(
        self, candidate: Candidate, requests: Path, *, check: Check | None = None
    ) -> list[Measure]:
        """Measure fresh starts of a server that has the machine to itself.

        A first one warms the disk and is checked.
        """
        with self.start(candidate, check=check):
            pass
        ready, memory = [], []
        for _ in range(STARTS):
            with self.start(candidate) as servers:
                server = servers[candidate.name]
                ready.append(server.ready_seconds)
                self.load(server, requests, BUSY, 2)
                memory.append(server.memory_mb())
        return start_measures(candidate.name, ready, memory)

    def test(self, server: Running, requests: Path) -> Callable[[], Point]:
        """Return one candidate's part of a round."""

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
        """Run wrk once. Raises ValueError when a request was not answered."""
        server.settle()
        port = server.candidate.port
        load = self.wrk.load(requests, port=port, connections=connections, seconds=seconds)
        if not load.clean:
            raise ValueError(
                f"{server.candidate.name} left requests unanswered at {connections} clients: "
                f"{load}; its log is {self._log(server.candidate)}"
            )
        return load

    def _log(self, candidate: Candidate) -> Path:
        return self.folder / "logs" / f"{candidate.name.replace(' ', '-')}.log"
