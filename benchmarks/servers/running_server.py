"""A server under measurement: a process group of its own, and its readiness, memory and time."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.child import process_trees, stat_fields
from benchmarks.servers.workload import Request
from local_cloud.containers.container import start_process
from roundhouse.processes import end

READY_SECONDS = 120.0
POLL_SECONDS = 0.005
SETTLE_SECONDS = 0.3
PING = Request(body=b"", method="GET", path="/ping")


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """How a server is started; `cores` pins it (taskset's list)."""

    name: str
    argv: tuple[str, ...]
    port: int
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    cores: str | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """The command line, pinned."""
        return self.argv if self.cores is None else ("taskset", "-c", self.cores, *self.argv)

    def request(self, request: Request, timeout: float = 60) -> tuple[int, bytes, str]:
        """Send a request and return the response's status, body and content type."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            headers = {"Content-Type": request.content_type, **dict(request.headers)}
            connection.request(request.method, request.path, request.body, headers)
            response = connection.getresponse()
            return response.status, response.read(), response.headers.get("Content-Type", "")


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server that is ready."""

    candidate: Candidate
    process: subprocess.Popen[bytes]
    ready_seconds: float

    def settle(self) -> None:
        """Wait until requests of clients that have left no longer occupy the server."""
        time.sleep(SETTLE_SECONDS)
        self.candidate.request(PING)

    def memory_mb(self) -> float:
        """Return the resident memory of its processes in 10^6 bytes.

        RSS of one; of several PSS, so that shared pages count once.
        """
        pids = process_trees([self.process.pid])
        word = "Rss:" if len(pids) == 1 else "Pss:"
        return sum(_kib(pid, word) for pid in pids) * 1024 / 1e6

    def held_mb(self) -> float:
        """Return what its processes hold for themselves, in 10^6 bytes: memory without files.

        How much of a library's pages counts as theirs changes with other programs of the machine.
        """
        return held_mb(process_trees([self.process.pid]))

    def cpu_seconds(self) -> float:
        """Return the processor time that its processes have taken so far."""
        fields = filter(None, map(stat_fields, process_trees([self.process.pid])))
        return sum(int(line[11]) + int(line[12]) for line in fields) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Started:
    """A server that was started now."""

    candidate: Candidate
    process: subprocess.Popen[bytes]
    log: Path
    begin: float

    def ready(self) -> Running:
        """Wait for it. Raises ValueError when it does not become ready."""
        _wait_until_ready(self.candidate, self.process, self.log)
        seconds = time.monotonic() - self.begin
        return Running(candidate=self.candidate, process=self.process, ready_seconds=seconds)


@contextlib.contextmanager
def start_server(candidate: Candidate, log: Path) -> Iterator[Started]:
    """Run a server until the block ends, ready or not."""
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    process = start_process(
        candidate.command, environment=candidate.environment, folder=candidate.folder, log=log
    )
    try:
        yield Started(candidate=candidate, process=process, log=log, begin=begin)
    finally:
        end(process)


def _wait_until_ready(candidate: Candidate, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if candidate.request(PING, timeout=2)[0] == 200:
                return
        time.sleep(POLL_SECONDS)
    output = log.read_text(encoding="utf-8", errors="replace").strip()[-600:]
    reason = "took too long" if process.poll() is None else f"ended with {process.poll()}"
    raise ValueError(f"{candidate.name} is not ready, it {reason}: {output}")


def held_mb(pids: Iterable[int]) -> float:
    """Return the anonymous and shared memory of processes in 10^6 bytes, shared pages once."""
    words = ("Pss_Anon:", "Pss_Shmem:")
    return sum(_kib(pid, word) for pid in pids for word in words) * 1024 / 1e6


def _kib(pid: int, word: str) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith(word):
                return float(line.split()[1])
    return 0.0
