"""The Python server as a process that can be killed.

Asked over connections that a test holds in its hand.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.contract.engine_faults import HOLDS, TAKEN
from tests.contract.hostile_server import PYTHON, free_port
from tests.contract.requests import JSON_TYPE
from tests.fixtures.tiny_embedder.archive import REPOSITORY

SECONDS = 40.0
"""What even a slow machine does sooner."""
FOUND = TypeVar("FOUND")
REAL, FAULTY = "container.server", "tests.contract.faulty_engine"
Gone = (OSError, http.client.HTTPException)
"""What a client hears when its connection ends without an answer."""


def until(condition: Callable[[], FOUND], what: str) -> FOUND:
    """What the condition comes to, once that is true; fails after a while."""
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)
    return found


@dataclass(frozen=True)
class Answer:
    """A status, headers in lower case, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def sentence(self) -> str:
        """Of a refusal, which holds nothing else."""
        document = json.loads(self.body)
        assert list(document) == ["error"], document
        return str(document["error"])

    @property
    def vectors(self) -> list[list[float]]:
        """Of an answer."""
        assert self.status == 200, self
        return list(json.loads(self.body)["outputs"])


class Caller:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        self._connection.connect()
        self.port = int(self._connection.sock.getsockname()[1])

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """One request and its answer."""
        self._connection.request(method, path, body, {"Content-Type": JSON_TYPE, **headers})
        response = self._connection.getresponse()
        return Answer(
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            response.read(),
        )

    def ask(self, *texts: str, path: str = "/invocations", **fields: object) -> Answer:
        """Texts, and fields beside them."""
        return self.request("POST", path, json.dumps({"inputs": texts} | fields).encode())

    def send(self, data: bytes) -> None:
        """Bytes."""
        self._connection.sock.sendall(data)

    def read(self) -> bytes:
        """All that comes until the server closes."""
        with contextlib.closing(self._connection.sock.makefile("rb")) as file:
            return file.read()

    def close(self) -> None:
        """Leaves."""
        self._connection.close()


@dataclass
class Faulty:
    """A running server and the folder of its engine's faults."""

    process: subprocess.Popen[bytes]
    port: int
    faults: Path
    log: Path
    callers: list[Caller] = field(default_factory=list)

    def caller(self) -> Caller:
        """A new connection."""
        self.callers.append(Caller(self.port))
        return self.callers[-1]

    def ping(self) -> int | None:
        """The status of a new connection's; None where nobody listens, or answers."""
        try:
            with contextlib.closing(Caller(self.port)) as caller:
                return caller.request("GET", "/ping").status
        except Gone:
            return None

    def wait_until_ready(self) -> None:
        """Until it is healthy; a server that ends fails the test with its log."""

        def healthy() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            return self.ping() == 200

        until(healthy, "a healthy server")

    def metric(self, name: str) -> float:
        """The sum of a metric's samples, all labels and processes together.

        Asks again where an HTTP process dies on it.
        """
        lines = until(self._metrics, "metrics")
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.split("{")[0].split(" ")[0] == name
        )

    def _metrics(self) -> list[str]:
        with contextlib.suppress(*Gone), contextlib.closing(Caller(self.port)) as caller:
            return caller.request("GET", "/metrics").body.decode().splitlines()
        return []

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The failure log's lines of an event, but for one that is being written."""
        whole, _, _ = self.log.read_text().rpartition("\n")
        found = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in found if line["event"] == event]

    def demand(self, name: str) -> None:
        """Begins a fault."""
        (self.faults / name).touch()

    def end(self, name: str) -> None:
        """Ends a fault."""
        (self.faults / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The engine ends no batch."""
        self.end(TAKEN)
        self.demand(HOLDS)
        try:
            yield
        finally:
            self.end(HOLDS)

    def wait_until_taken(self) -> None:
        """Until the engine has a batch."""
        until((self.faults / TAKEN).exists, "a batch in the engine")

    def ended(self) -> int:
        """The exit code of a server that ends."""
        return self.process.wait(SECONDS)

    def stop(self) -> None:
        """Whatever state it is in."""
        for caller in self.callers:
            caller.close()
        self.process.kill()
        self.process.wait()


def start(
    archive: Path,
    folder: Path,
    *,
    module: str = FAULTY,
    port: int | None = None,
    limit: str = "",
    **variables: str,
) -> Faulty:
    """Starts a server, which is not ready when this returns; `limit` are prlimit's arguments."""
    faults, log = folder / "faults", folder / "server.log"
    faults.mkdir(parents=True, exist_ok=True)
    port = free_port() if port is None else port
    environment = {
        "PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "SM_MODEL_DIR": str(archive),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1", "FAULTS": str(faults), "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    command = (*limit.split(), str(PYTHON), "-W", "error", "-m", module, "serve")
    with log.open("ab") as to:
        process = subprocess.Popen(
            command, env=environment | variables, cwd=folder, stdout=to, stderr=to
        )
    return Faulty(process=process, port=port, faults=faults, log=log)


def load(caller: Caller, name: str, archive: Path) -> Answer:
    """As SageMaker loads."""
    return caller.request(
        "POST", "/models", json.dumps({"model_name": name, "url": str(archive)}).encode()
    )


def children(pid: int) -> list[int]:
    """The HTTP processes of an owner."""
    return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ports_served_by(pid: int) -> set[int]:
    """The callers' ports of the connections that a process has."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(str(entry.readlink()))
    return {int(row[2].split(":")[1], 16) for row in rows if f"socket:[{row[9]}]" in links}


def terminate(process: subprocess.Popen[bytes]) -> None:
    """As SageMaker does."""
    process.send_signal(signal.SIGTERM)


def texts_of(tokens: int) -> str:
    """A text of so many tokens, with the two that every text has."""
    return " ".join(["cat"] * (tokens - 2))


def same(found: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> bool:
    """Whether vectors are those, but for the last digits."""
    pairs = zip(
        (number for row in found for number in row),
        (number for row in right for number in row),
        strict=True,
    )
    return len(found) == len(right) and all(abs(one - other) < 1e-5 for one, other in pairs)


def is_refusal(answer: Answer, status: int = 503) -> bool:
    """A sentence, with a time to come back where it says 503."""
    return (
        answer.status == status
        and bool(answer.sentence)
        and (status != 503 or int(answer.headers["retry-after"]) > 0)
    )
