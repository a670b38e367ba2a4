"""The servers that are measured, ours and real Triton: their start, their requests, their load."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_cloud.containers.container import start_process
from onboarding.serve_environment import serve_environment
from roundhouse.processes import end

REPOSITORY = Path(__file__).resolve().parents[2]
READY_SECONDS, POLL_SECONDS, SETTLE_SECONDS = 240.0, 0.005, 0.3
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
  io.write(string.format('ROUNDHOUSE {"requests": %d, "seconds": %.6f, "failed": %d}\\n',
    summary.requests, summary.duration / 1e6,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout))
end
"""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One HTTP request, whole but for its address."""

    body: bytes
    content_type: str = "application/json"
    method: str = "POST"
    path: str = "/invocations"

    def wire(self) -> bytes:
        """Return the bytes on the wire."""
        head = (
            f"{self.method} {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: {self.content_type}\r\nContent-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


PING = Request(body=b"", method="GET", path="/ping")


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

    def is_ready(self) -> bool:
        """Return whether /ping answers 200."""
        try:
            return self.request(PING, timeout=2)[0] == 200
        except (OSError, http.client.HTTPException):
            return False


@contextlib.contextmanager
def start_server(candidate: Candidate, log: Path) -> Iterator[Candidate]:
    """Give a server once it is ready, and end it. Raises ValueError when it does not become so."""
    log.parent.mkdir(parents=True, exist_ok=True)
    process = start_process(
        candidate.argv, environment=candidate.environment, folder=candidate.folder, log=log
    )
    try:
        _wait_until_ready(candidate, process, log)
        yield candidate
    finally:
        end(process)


def _wait_until_ready(candidate: Candidate, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if candidate.is_ready():
            return
        time.sleep(POLL_SECONDS)
    output = log.read_text(encoding="utf-8", errors="replace").strip()[-600:]
    reason = "took too long" if process.poll() is None else f"ended with {process.poll()}"
    raise ValueError(f"{candidate.name} is not ready, it {reason}: {output}")


def ours(archive: Path) -> Candidate:
    """Return the Python server on an archive, as its image starts it."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("ROUNDHOUSE_")
    }
    return python_server("our server", "container.server", server_python(), archive, inherited)


def server_python() -> str:
    """Return the interpreter of the server's environment, or this one where there is none."""
    venv = REPOSITORY / ".venvs" / "server" / "bin" / "python"
    return str(venv) if venv.is_file() else sys.executable


def python_server(
    name: str, module: str, python: str, archive: Path, variables: Mapping[str, str]
) -> Candidate:
    """Return a server `python -m MODULE serve` of an archive; `variables` are its environment."""
    port = free_port()
    path = ":".join(filter(None, [str(REPOSITORY), variables.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, "SM_MODEL_DIR": str(archive), **address(port)}
    argv = (python, "-m", module, "serve")
    return Candidate(
        name=name, argv=argv, port=port, folder=REPOSITORY, environment={**variables, **own}
    )


def triton(archive: Path, folder: Path, model: str) -> Candidate:
    """Return real Triton behind the server that checks requests, as in its image."""
    port, venv = free_port(), REPOSITORY / ".venvs" / "triton"
    serve = REPOSITORY / "local_cloud" / "containers" / "triton_serve.py"
    options = ("--triton", str(venv), "--backends", str(folder / "backends"))
    environment = {
        "PATH": f"{venv}/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "SM_MODEL_DIR": str(archive),
        **address(port),
        **serve_environment(model),
    }
    argv = (str(venv / "bin" / "python"), "-I", "-S", str(serve), *options)
    return Candidate(name="Triton", argv=argv, port=port, folder=folder, environment=environment)


def address(port: int) -> dict[str, str]:
    """Return the variables of a server's address."""
    return {"SAGEMAKER_BIND_TO_PORT": str(port), "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1"}


def free_port() -> int:
    """Return a port that nothing listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, kw_only=True)
class Wrk:
    """The load generator, and the folder of its script and of the requests."""

    program: str
    folder: Path

    @classmethod
    def find(cls, folder: Path) -> Wrk:
        """Return FOLDER/wrk/wrk or the installed program. Raises ValueError without one."""
        own = folder / "wrk" / "wrk"
        path = str(own) if own.is_file() else shutil.which("wrk")
        if path is None:
            raise ValueError(
                "the load generator wrk is not installed; `apt-get install wrk`, then run the same "
                "command again."
            )
        (folder / "load.lua").write_text(SCRIPT, encoding="utf-8")
        return cls(program=path, folder=folder)

    def requests_file(self, requests: Iterable[Request], name: str) -> Path:
        """Write requests as the script reads them: a length, a newline, the bytes on the wire."""
        path = self.folder / name
        wires = (request.wire() for request in requests)
        path.write_bytes(b"".join(b"%d\n%s" % (len(wire), wire) for wire in wires))
        return path

    def rate(self, server: Candidate, requests: Path, connections: int, seconds: float) -> float:
        """Return requests a second of a closed loop on kept-alive connections, in one thread.

        Raises ValueError when a request was not answered with success.
        """
        time.sleep(SETTLE_SECONDS)  # until clients that have left no longer occupy the server
        server.request(PING)
        shape = ("-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "30s")
        url = f"http://127.0.0.1:{server.port}/"
        script = str(self.folder / "load.lua")
        argv = (self.program, *shape, "-s", script, url, "--", str(requests))
        output = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
        return read_rate(output, f"{server.name}, {connections} clients")


def read_rate(output: str, what: str) -> float:
    """Return requests a second in wrk's output. Raises ValueError for none, and for a fault."""
    lines = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if len(lines) != 1:
        raise ValueError(f"{what}: wrk printed no numbers: {output.strip()[-300:]}")
    found = json.loads(lines[0])
    if found["failed"] or not found["requests"]:
        raise ValueError(f"{what}: {found['failed']} of {found['requests']} requests failed")
    return float(found["requests"] / found["seconds"])
