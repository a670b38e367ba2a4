"""The servers that are measured, ours and real Triton: their readiness, memory and time."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.servers.workload import Request
from local_cloud.containers.container import start_process
from onboarding.serve_environment import serve_environment
from roundhouse.processes import end

REPOSITORY = Path(__file__).resolve().parents[2]
PATH = "/usr/bin:/bin"
MODEL = "sentence-embedder"
READY_SECONDS = 240.0
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
    """How a server is started."""

    name: str
    argv: tuple[str, ...]
    port: int
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def request(self, request: Request, timeout: float = 60) -> tuple[int, bytes]:
        """Send a request and return the response's status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            headers = {"Content-Type": request.content_type}
            connection.request(request.method, request.path, request.body, headers)
            response = connection.getresponse()
            return response.status, response.read()


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
        pids = process_tree(self.process.pid)
        word = "Rss:" if len(pids) == 1 else "Pss:"
        return sum(_kib(pid, word) for pid in pids) * 1024 / 1e6

    def cpu_seconds(self) -> float:
        """Return the processor time that its processes have taken so far."""
        fields = filter(None, map(_stat_fields, process_tree(self.process.pid)))
        return sum(int(line[11]) + int(line[12]) for line in fields) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def start_server(candidate: Candidate, log: Path) -> Iterator[Running]:
    """Give a server once it is ready, and end it. Raises ValueError when it does not become so."""
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    process = start_process(
        candidate.argv, environment=candidate.environment, folder=candidate.folder, log=log
    )
    try:
        _wait_until_ready(candidate, process, log)
        seconds = time.monotonic() - begin
        yield Running(candidate=candidate, process=process, ready_seconds=seconds)
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


def process_tree(root: int) -> tuple[int, ...]:
    """Return a process and everything that it started."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (fields := _stat_fields(int(entry.name))):
            children[int(fields[1])].append(int(entry.name))
    pids = [root]
    for pid in pids:
        pids.extend(children[pid])
    return tuple(pids)


def _stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the program's name; none once it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _kib(pid: int, word: str) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith(word):
                return float(line.split()[1])
    return 0.0


def ours(archive: Path, name: str = "ours") -> Candidate:
    """Return the Python server on an archive, as its image starts it.

    Without an environment of its own it runs in this Python.
    """
    port, venv = free_port(), REPOSITORY / ".venvs" / "server" / "bin" / "python"
    environment = {**server_environment(), "SM_MODEL_DIR": str(archive), **_address(port)}
    python = str(venv) if venv.is_file() else sys.executable
    argv = (python, "-m", "container.server", "serve")
    return Candidate(name=name, argv=argv, port=port, folder=REPOSITORY, environment=environment)


def server_environment() -> dict[str, str]:
    """Return this process's environment with the folders of PyTorch's CUDA libraries."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("ROUNDHOUSE_")
    }
    libraries = [
        str(path) for entry in sys.path for path in sorted(Path(entry).glob("nvidia/*/lib"))
    ]
    paths = {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": [str(REPOSITORY)]}
    joined = {
        name: ":".join([*folders, *filter(None, [inherited.get(name)])])
        for name, folders in paths.items()
    }
    return {**inherited, **joined}


def triton(archive: Path, folder: Path, name: str = "triton", *, model: str = MODEL) -> Candidate:
    """Return real Triton behind the server that checks requests, as in its image."""
    port, venv = free_port(), REPOSITORY / ".venvs" / "triton"
    serve = REPOSITORY / "local_cloud" / "containers" / "triton_serve.py"
    options = ("--triton", str(venv), "--backends", str(folder / "backends"))
    environment = {
        "PATH": f"{venv}/bin:{PATH}",
        "HOME": str(folder),
        "SM_MODEL_DIR": str(archive),
        **_address(port),
        **serve_environment(model),
    }
    argv = (str(venv / "bin" / "python"), "-I", "-S", str(serve), *options)
    return Candidate(name=name, argv=argv, port=port, folder=folder, environment=environment)


def _address(port: int) -> dict[str, str]:
    return {"SAGEMAKER_BIND_TO_PORT": str(port), "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1"}
