"""The Python server as a process of its own, for tests that count its open files and its memory."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.requests import JSON_TYPE
from tests.contract.server_process import SECONDS, free_port, launch, until
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
    files_before: int = 0
    mib_before: float = 0

    def warm_up(self) -> None:
        """Run all code once, so that what is allocated for good is there, and count."""
        at_rest = self.files()
        requests = hostile_requests(SEED + 1, 300, self.document)
        asyncio.run(ask_all(self.port, requests, Tally()))
        until(lambda: self.files() <= at_rest + 4, "connections that are closed")
        self.files_before, self.mib_before = self.files(), self.mib()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    def files(self) -> int:
        """Open file descriptors."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def mib(self) -> float:
        """Resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def ask(self, connection: http.client.HTTPConnection) -> list[object]:
        """The numbers of a right answer to a right request."""
        body = json.dumps(self.document)
        connection.request("POST", "/invocations", body, {"Content-Type": JSON_TYPE})
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, (response.status, body)
        return [number for output in json.loads(body)["outputs"] for number in output["data"]]


def start(tiny: Tiny, archive: Path, log: Path, document: dict[str, object]) -> Running:
    """Start a server with four seconds for a request, and wait until it is ready."""
    port = free_port()
    limits = {
        "ROUNDHOUSE_REQUEST_SECONDS": "4",
        "ROUNDHOUSE_MAX_BODY_BYTES": str(2**20),
        "ROUNDHOUSE_MAX_CONNECTIONS": str(MAX_CONNECTIONS),
    }
    process = launch(archive, log, port, **limits)
    running = Running(tiny=tiny, port=port, process=process, log=log, document=document)

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        return _body(port, "/ping") == b""

    until(ready, "a ready server")
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
