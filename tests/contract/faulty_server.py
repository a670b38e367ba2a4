"""The Python server as a process, its engine with or without faults; its clients' connections."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.contract.engine_faults import HOLDS, TAKEN
from tests.contract.requests import JSON_TYPE
from tests.contract.server_process import SECONDS, free_port, until
from tests.fixtures.tiny_embedder.archive import REPOSITORY

REAL, FAULTY = "container.server", "tests.contract.faulty_engine"
Gone = (OSError, http.client.HTTPException)
"""What a client gets when its connection ends without an answer."""


@dataclass(frozen=True)
class Answer:
    """A status, headers in lower case, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def sentence(self) -> str:
        """The sentence of a refusal, which holds nothing else."""
        document = json.loads(self.body)
        assert list(document) == ["error"], document
        return str(document["error"])

    @property
    def vectors(self) -> list[list[float]]:
        assert self.status == 200, self
        return list(json.loads(self.body)["outputs"])


class Caller:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        self._connection.connect()

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        self._connection.request(method, path, body, {"Content-Type": JSON_TYPE, **headers})
        response = self._connection.getresponse()
        lower = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, lower, response.read())

    def ask(self, *texts: str, path: str = "/invocations", **fields: object) -> Answer:
        return self.request("POST", path, json.dumps({"inputs": texts} | fields).encode())

    def send(self, data: bytes) -> None:
        self._connection.sock.sendall(data)

    def read(self) -> bytes:
        """All that comes until the server closes."""
        with contextlib.closing(self._connection.sock.makefile("rb")) as file:
            return file.read()

    def close(self) -> None:
        self._connection.close()


@dataclass
class FaultyServer:
    """A running server and the folder of its engine's faults."""

    process: subprocess.Popen[bytes]
    port: int
    faults: Path
    log: Path
    callers: list[Caller] = field(default_factory=list)

    def caller(self) -> Caller:
        self.callers.append(Caller(self.port))
        return self.callers[-1]

    def ping(self) -> int | None:
        """The health's status on a new connection; None where nobody listens, or answers."""
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
        """The sum of a metric's samples, all labels together."""
        with contextlib.closing(Caller(self.port)) as caller:
            lines = caller.request("GET", "/metrics").body.decode().splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.split("{")[0].split(" ")[0] == name
        )

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The failure log's lines of an event, but for one that is being written."""
        whole, _, _ = self.log.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def demand(self, name: str) -> None:
        """Begin a fault."""
        (self.faults / name).touch()

    def end(self, name: str) -> None:
        """End a fault."""
        (self.faults / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def hold_batches(self) -> Iterator[None]:
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

    def exit_code(self) -> int:
        """The exit code of a server that ends."""
        return self.process.wait(SECONDS)

    def terminate(self) -> None:
        """As SageMaker does."""
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Whatever state it is in."""
        for caller in self.callers:
            caller.close()
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def launched_server(
    archive: Path,
    folder: Path,
    *,
    module: str = FAULTY,
    faults: Sequence[str] = (),
    ready: bool = True,
    **variables: str,
) -> Iterator[FaultyServer]:
    """A server, `ready` or not, with some faults from its start; stopped at the end."""
    faults_folder, log = folder / "faults", folder / "server.log"
    faults_folder.mkdir(parents=True, exist_ok=True)
    for fault in faults:
        (faults_folder / fault).touch()
    port, python = free_port(), REPOSITORY / ".venvs" / "server" / "bin" / "python"
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONUNBUFFERED": "1",
        "SM_MODEL_DIR": str(archive),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        "FAULTS": str(faults_folder),
        **variables,
    }
    command = (str(python), "-W", "error", "-m", module, "serve")
    with log.open("ab") as file:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=file, stderr=file)
    server = FaultyServer(process=process, port=port, faults=faults_folder, log=log)
    try:
        if ready:
            server.wait_until_ready()
        yield server
    finally:
        server.stop()


def texts_of(tokens: int) -> str:
    """A text of so many tokens, with the two that every text has."""
    return " ".join(["cat"] * (tokens - 2))


def same(vectors: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> bool:
    """Whether vectors are those, but for the last digits."""
    return len(vectors) == len(right) and np.allclose(vectors, right, rtol=0, atol=1e-5)


def is_refusal(answer: Answer, status: int = 503) -> bool:
    """A sentence, with a time to come back where it says 503."""
    return (
        answer.status == status
        and bool(answer.sentence)
        and (status != 503 or int(answer.headers["retry-after"]) > 0)
    )
