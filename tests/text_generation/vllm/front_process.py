"""The server before vLLM as a process, with real vLLM on this machine's processors behind it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import ClientSession, ClientTimeout, TCPConnector

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venvs" / "vllm" / "bin" / "python"
SERVE = ROOT / "local_cloud" / "containers" / "vllm_serve.py"
SETTINGS = {
    "SM_VLLM_SERVED_MODEL_NAME": "chat",
    "SM_VLLM_MAX_MODEL_LEN": "512",
    "SM_VLLM_MAX_NUM_SEQS": "8",
    "SM_VLLM_MAX_NUM_QUEUED_REQS": "16",
    # In 16 bits two parts of a sum, added in another order, choose other tokens.
    "SM_VLLM_DTYPE": "float32",
}
START_SECONDS, STOP_SECONDS = 240, 40
JSON = {"Content-Type": "application/json"}


class NotReady(Exception):
    """The engine does not answer; the message is the end of its log."""


@dataclass(frozen=True)
class FrontProcess:
    """A front that answers /ping with 200."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def ask(
        self,
        path: str,
        document: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
        method: str | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of an answer."""
        body = data if data is not None or document is None else json.dumps(document).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            verb = ("GET" if body is None else "POST") if method is None else method
            more = {} if headers is None else headers
            connection.request(verb, path, body, {**JSON, **more})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """Return the sum of a metric's samples."""
        lines = self.ask("/metrics")[2].decode().splitlines()
        rows = [line for line in lines if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(row.rsplit(" ", 1)[1]) for row in rows)

    def session(self) -> ClientSession:
        """Return a client that opens a connection for each request; of a running event loop."""
        connector = TCPConnector(limit=0, force_close=True)
        timeout = ClientTimeout(total=300)
        return ClientSession(f"http://127.0.0.1:{self.port}", connector=connector, timeout=timeout)


@contextmanager
def front_process(checkpoint: Path, log: Path, **settings: str) -> Iterator[FrontProcess]:
    """Start a front before vLLM that serves a checkpoint folder, and end both. Raises NotReady."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    variables = {
        "PATH": f"{PYTHON.parent}:/usr/bin:/bin",
        "HOME": str(Path.home()),
        "PYTHONPATH": str(ROOT),
        "SM_MODEL_DIR": str(checkpoint),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        **SETTINGS,
        **settings,
    }
    command = (str(PYTHON), "-m", "container.server", "vllm", str(PYTHON), str(SERVE))
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdout=output, stderr=subprocess.STDOUT
        )
    front = FrontProcess(process, port, log)
    try:
        _await_ready(front)
        yield front
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(front: FrontProcess) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and front.process.poll() is None:
        try:
            if front.ask("/ping")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.5)
    tail = front.log.read_text(encoding="utf-8", errors="replace")[-3000:]
    raise NotReady(f"status {front.process.poll()}:\n{tail}")


def completion(prompt: Any = "hello", tokens: int = 8, **more: Any) -> dict[str, Any]:
    """Return the request of a greedy completion of exactly so many tokens."""
    fixed = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return {"prompt": prompt, **fixed, **more}


class Streamed(NamedTuple):
    """A streamed answer; seconds to its first bytes, or to the end of a refusal."""

    status: int
    first_seconds: float
    body: bytes


async def read_stream(session: ClientSession, document: Mapping[str, Any]) -> Streamed:
    """Return the answer of a request that is streamed."""
    begin, first, parts = time.monotonic(), None, []
    body = json.dumps({**document, "stream": True})
    async with session.post("/invocations", data=body, headers=JSON) as answer:
        async for part in answer.content.iter_any():
            first = time.monotonic() - begin if first is None else first
            parts.append(part)
        last = time.monotonic() - begin
        return Streamed(answer.status, last if first is None else first, b"".join(parts))
