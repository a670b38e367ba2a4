"""The Python server as a process of its own, for tests that count its open files and its memory."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.hostile_clients import Tally, ask_all
from tests.contract.hostile_requests import hostile_requests
from tests.contract.requests import JSON_TYPE
from tests.fixtures.tiny_embedder.archive import REPOSITORY, Tiny

SEED = 4
SECONDS = 90.0
MAX_CONNECTIONS = 300
PYTHON = REPOSITORY / ".venvs" / "server" / "bin" / "python"


@dataclass
class Running:
    """A server process that is not in a namespace, so that its files and memory can be counted."""

    tiny: Tiny
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    document: dict[str, object]
    tally: Tally = field(default_factory=Tally)
    path: str = "/invocations"
    share: float = 1.0
    """Of the full count of requests."""
    files_before: int = 0
    mib_before: float = 0

    @property
    def pids(self) -> list[int]:
        """The process and its HTTP processes."""
        pid = self.process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def aimed(self, requests: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Requests to where this server answers."""
        return ((method, self.aim(request)) for method, request in requests)

    def aim(self, request: bytes) -> bytes:
        """A request to where this server answers."""
        return request.replace(b"/invocations", self.path.encode())

    def warm_up(self) -> None:
        """Has every path walked once, so that what is allocated for good is there, and counts."""
        at_rest = self.files()
        asyncio.run(
            ask_all(self.port, self.aimed(hostile_requests(SEED + 1, 300, self.document)), Tally())
        )
        until(lambda: self.files() <= at_rest + 4, "connections stay open")
        self.files_before, self.mib_before = self.files(), self.mib()

    def files(self) -> int:
        """Open file descriptors of all its processes."""
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in self.pids)

    def mib(self) -> float:
        """Resident memory of all its processes."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids)
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def ask(self, connection: http.client.HTTPConnection) -> list[object]:
        """The numbers of a right answer to a right request."""
        connection.request(
            "POST", self.path, json.dumps(self.document), {"Content-Type": JSON_TYPE}
        )
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, (response.status, body)
        return [number for output in json.loads(body)["outputs"] for number in output["data"]]


def until(condition: Callable[[], bool], what: str) -> None:
    """Polls; fails after a while."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def start(
    tiny: Tiny, archive: Path, log: Path, document: dict[str, object], **variables: str
) -> Running:
    """Starts a server that has four seconds of patience.

    Waits until all of its processes are ready.
    """
    port = free_port()
    environment = {
        "PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "SM_MODEL_DIR": str(archive),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1", "ROUNDHOUSE_REQUEST_SECONDS": "4",
        "ROUNDHOUSE_MAX_BODY_BYTES": str(2**20),
        "ROUNDHOUSE_MAX_CONNECTIONS": str(MAX_CONNECTIONS),
    }  # fmt: skip
    command = (str(PYTHON), "-W", "error", "-m", "container.server", "serve")
    with log.open("wb") as to:
        process = subprocess.Popen(
            command, env=environment | variables, cwd=log.parent, stdout=to, stderr=to
        )
    running = Running(tiny=tiny, port=port, process=process, log=log, document=document)
    count = int(variables.get("ROUNDHOUSE_HTTP_PROCESSES", "1"))

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        return _got(port, "/ping") == b"" and (
            count == 1 or b"roundhouse_http_processes %d" % count in _got(port, "/metrics")
        )

    until(ready, "the server is not ready")
    return running


def start_multi_model(tiny: Tiny, archive: Path, log: Path, document: dict[str, object]) -> Running:
    """Starts a multi-model server that has loaded one model."""
    running = start(tiny, archive, log, document, SAGEMAKER_MULTI_MODEL="true")
    running.path = "/models/hostile/invoke"
    with closing(
        http.client.HTTPConnection("127.0.0.1", running.port, timeout=SECONDS)
    ) as connection:
        connection.request(
            "POST", "/models", json.dumps({"model_name": "hostile", "url": str(archive)})
        )
        assert connection.getresponse().status == 200, log.read_text()
    return running


def _got(port: int, path: str) -> bytes:
    """The body of a good answer; else a word that no answer is."""
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            return body if response.status == 200 else b"no"
    except OSError:
        return b"no"
