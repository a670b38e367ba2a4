"""Starts servers, loads them by wrk in paired rounds, and turns the rounds into measures."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.measure import Bar, Measure, at_most, of_rounds
from benchmarks.servers.running_server import Candidate, Running, start_server
from benchmarks.servers.workload import Request
from roundhouse.processes import Command, Run

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


MARK = "ROUNDHOUSE "
SCRIPT = """\
-- Sends the requests of a file one after the other, and prints its measurements as JSON.
local requests, position = {}, 0
function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  local size = file:read("*n")
  while size do
    file:read(1)
    table.insert(requests, file:read(size))
    size = file:read("*n")
  end
  file:close()
end
function request()
  position = position % #requests + 1
  return requests[position]
end
function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    'ROUNDHOUSE {"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p99_ms": %.4f, ' ..
    '"refused": %d, "socket_errors": %d, "timeouts": %d}\\n', summary.requests,
    summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, errors.status,
    errors.connect + errors.read + errors.write, errors.timeout))
end
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one run of wrk measured, with latencies as wrk corrects them."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    refused: int
    """Responses of status 400 and above."""
    socket_errors: int
    timeouts: int

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def clean(self) -> bool:
        """True when every request was answered with success."""
        return self.requests > 0 and self.refused + self.socket_errors + self.timeouts == 0


def requests_file(requests: Iterable[Request], path: Path) -> Path:
    """Write requests as the script reads them: a length, a newline, the bytes on the wire."""
    path.parent.mkdir(parents=True, exist_ok=True)
    wires = (request.wire() for request in requests)
    path.write_bytes(b"".join(b"%d\n%s" % (len(wire), wire) for wire in wires))
    return path


@dataclass(frozen=True, kw_only=True)
class Wrk:
    """The load generator as it is started."""

    program: str
    script: Path
    run: Run

    def load(self, file: Path, *, port: int, connections: int, seconds: float) -> Load:
        """Load a server on this machine: a closed loop, keep-alive, one thread.

        Raises ValueError when wrk prints no numbers.
        """
        duration = f"{max(1, round(seconds))}s"
        shape = ("-t", "1", "-c", str(connections), "-d", duration, "--timeout", "30s")
        url = f"http://127.0.0.1:{port}/"
        argv = (self.program, *shape, "-s", str(self.script), url, "--", str(file))
        command = Command(argv=argv)
        return read_load(self.run(command).output, str(command))


def wrk_program(folder: Path, run: Run, *, program: str | None = None) -> Wrk:
    """Return wrk with its script written into a folder. Raises ValueError without the program."""
    path = shutil.which("wrk") if program is None else program
    if path is None:
        raise ValueError(
            "the load generator wrk is not installed; `apt-get install wrk`, then run the same "
            "command again."
        )
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "load.lua"
    script.write_text(SCRIPT, encoding="utf-8")
    return Wrk(program=path, script=script, run=run)


def read_load(output: str, command: str) -> Load:
    """Return the numbers in wrk's output. Raises ValueError when there are none."""
    lines = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if len(lines) != 1:
        raise ValueError(f"`{command}` printed no numbers: {output.strip()[-300:]}")
    return Load(**json.loads(lines[0]))
