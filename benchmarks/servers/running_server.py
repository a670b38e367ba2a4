"""A server under measurement: started, awaited, weighed and ended as a process group of its own."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.child import process_trees
from benchmarks.servers.workload import Request
from local_cloud.containers.container import start_process
from roundhouse.processes import end

READY_SECONDS = 120.0
POLL_SECONDS = 0.005
SETTLE_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """How a server is started; `cores` pins it (taskset's list)."""

    name: str
    argv: tuple[str, ...]
    port: int
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    cores: str | None = None
    ping: str = "/ping"

    @property
    def command(self) -> tuple[str, ...]:
        """What runs."""
        return self.argv if self.cores is None else ("taskset", "-c", self.cores, *self.argv)


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server that is ready."""

    candidate: Candidate
    process: subprocess.Popen[bytes]
    ready_seconds: float

    def ask(self, request: Request) -> tuple[int, bytes, str]:
        """Status, body and content type of one request's answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.candidate.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(
                request.method,
                request.path,
                request.body,
                {"Content-Type": request.content_type, **dict(request.headers)},
            )
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers.get("Content-Type", "")

    def settle(self) -> None:
        """Waits until clients that have left are not in the way.

        A server that answers in turn answers them all first.
        """
        time.sleep(SETTLE_SECONDS)
        self.ask(Request(body=b"", method="GET", path=self.candidate.ping))

    def memory_mb(self) -> float:
        """Resident memory of its processes in 10^6 bytes: RSS of one.

        Of several PSS, so that shared pages count once.
        """
        pids = process_trees([self.process.pid])
        word = "Rss:" if len(pids) == 1 else "Pss:"
        return sum(_kib(pid, word) for pid in pids) * 1024 / 1e6

    def cpu_seconds(self) -> float:
        """Processor time that its processes have taken so far."""
        return sum(map(_ticks, process_trees([self.process.pid]))) / os.sysconf("SC_CLK_TCK")

    def processes(self) -> int:
        """How many processes it has."""
        return len(process_trees([self.process.pid]))


@contextlib.contextmanager
def running(candidate: Candidate, log: Path) -> Iterator[Running]:
    """A server from its start until the block ends. Raises ValueError when it never gets ready."""
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    process = start_process(
        candidate.command, environment=candidate.environment, folder=candidate.folder, log=log
    )
    try:
        yield Running(
            candidate=candidate,
            process=process,
            ready_seconds=_ready(candidate, process, log) - begin,
        )
    finally:
        end(process)


def _ready(candidate: Candidate, process: subprocess.Popen[bytes], log: Path) -> float:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if _pings(candidate):
            return time.monotonic()
        time.sleep(POLL_SECONDS)
    words = log.read_text(encoding="utf-8", errors="replace").strip()[-600:]
    how = "took too long" if process.poll() is None else f"ended with {process.poll()}"
    raise ValueError(f"{candidate.name} is not ready, it {how}: {words}")


def _pings(candidate: Candidate) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", candidate.port, timeout=2)
    with contextlib.closing(connection):
        try:
            connection.request("GET", candidate.ping)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def _ticks(pid: int) -> int:
    with contextlib.suppress(OSError):
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
        return int(fields[11]) + int(fields[12])
    return 0


def _kib(pid: int, word: str) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith(word):
                return float(line.split()[1])
    return 0.0
