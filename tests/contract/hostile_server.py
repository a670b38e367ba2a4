"""The Python server as a process of its own, for tests that count its open files and its memory."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.faulty_server import REAL, Caller, FaultyServer, launched_server
from tests.contract.server_process import until
from tests.fixtures.hostile.clients import Tally, ask_all
from tests.fixtures.hostile.requests import hostile_requests

SEED = 4
MAX_CONNECTIONS = 300
LIMITS = {
    "ROUNDHOUSE_REQUEST_SECONDS": "4",
    "ROUNDHOUSE_MAX_BODY_BYTES": str(2**20),
    "ROUNDHOUSE_MAX_CONNECTIONS": str(MAX_CONNECTIONS),
}


@dataclass
class Running(FaultyServer):
    """A server whose engine has no faults; it is in no namespace, so that it can be counted."""

    document: dict[str, object] = field(default_factory=dict)
    """The right request."""
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

    def files(self) -> int:
        """Open file descriptors."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def mib(self) -> float:
        """Resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def ask(self, caller: Caller) -> list[object]:
        """The numbers of a right answer to a right request."""
        answer = caller.request("POST", "/invocations", json.dumps(self.document).encode())
        assert answer.status == 200, answer
        outputs = json.loads(answer.body)["outputs"]
        return [number for output in outputs for number in output["data"]]


@contextmanager
def running_server(archive: Path, folder: Path, document: dict[str, object]) -> Iterator[Running]:
    """A warm server with four seconds for a request, stopped at the end."""
    with launched_server(archive, folder, module=REAL, **LIMITS) as server:
        running = Running(**vars(server), document=document)
        running.warm_up()
        yield running
