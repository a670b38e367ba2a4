"""The Python server as a process of its own, for tests that count its open files and its memory."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.requests import JSON_TYPE
from tests.contract.server_process import SECONDS, child_processes, free_port, launch, until
from tests.fixtures.hostile.clients import Tally, ask_all
from tests.fixtures.hostile.requests import hostile_requests
from tests.fixtures.tiny_embedder.archive import Tiny

SEED = 4
MAX_CONNECTIONS = 300


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
        return [self.process.pid, *child_processes(self.process.pid)]

    def aimed(self, requests: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Requests to where this server answers."""
        return ((method, self.aim(request)) for method, request in requests)

    def aim(self, request: bytes) -> bytes:
        """A request to where this server answers."""
        return request.replace(b"/invocations", self.path.encode())

    def warm_up(self) -> None:
        """Run all code once, so that what is allocated for good is there, and count."""
        at_rest = self.files()
        requests = self.aimed(hostile_requests(SEED + 1, 300, self.document))
        asyncio.run(ask_all(self.port, requests, Tally()))
        until(lambda: self.files() <= at_rest + 4, "connections that are closed")
        self.files_before, self.mib_before = self.files(), self.mib()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    def files(self) -> int:
        """Open file descriptors of all its processes."""
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in self.pids)

    def mib(self) -> float:
        """Resident memory of all its processes."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids)
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def ask(self, connection: http.client.HTTPConnection) -> list[object]:
        """The numbers of a right answer to a right request."""
        body = json.dumps(self.document)
        connection.request("POST", self.path, body, {"Content-Type": JSON_TYPE})
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, (response.status, body)
        return [number for output in json.loads(body)["outputs"] for number in output["data"]]


def start(
    tiny: Tiny, archive: Path, log: Path, document: dict[str, object], **variables: str
) -> Running:
    """Start a server with four seconds for a request, and wait until its processes are ready."""
    port = free_port()
    limits = {
        "ROUNDHOUSE_REQUEST_SECONDS": "4",
        "ROUNDHOUSE_MAX_BODY_BYTES": str(2**20),
        "ROUNDHOUSE_MAX_CONNECTIONS": str(MAX_CONNECTIONS),
    }
    process = launch(archive, log, port, **limits, **variables)
    running = Running(tiny=tiny, port=port, process=process, log=log, document=document)
    count = int(variables.get("ROUNDHOUSE_HTTP_PROCESSES", "1"))

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        processes = b"" if count == 1 else b"roundhouse_http_processes %d" % count
        return _body(port, "/ping") == b"" and processes in _body(port, "/metrics")

    until(ready, "a ready server")
    return running


def start_multi_model(tiny: Tiny, archive: Path, log: Path, document: dict[str, object]) -> Running:
    """Start a multi-model server that has loaded one model."""
    running = start(tiny, archive, log, document, SAGEMAKER_MULTI_MODEL="true")
    running.path = "/models/hostile/invoke"
    body = json.dumps({"model_name": "hostile", "url": str(archive)})
    with closing(running.connection()) as connection:
        connection.request("POST", "/models", body)
        assert connection.getresponse().status == 200, log.read_text()
    return running


def _body(port: int, path: str) -> bytes:
    """The body of a good answer; else a word that no answer is."""
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            return body if response.status == 200 else b"no"
    except OSError:
        return b"no"
