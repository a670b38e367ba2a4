"""Clients of a server: `python -m tests.gpu.load PORT ROWS CONNECTIONS SECONDS [plain]`.

Each connection sends one request after the other, each of ROWS texts of 128 tokens, by KServe's
binary extension in both directions; `plain`: as the JSON {"inputs": [text, …]}. Prints a line when
ready, begins when it reads one, and ends with {"texts": …, "seconds": …, "p50_ms": …, "spans": …},
the milliseconds of each request; of one connection with "polling_p50_ms" too.

`drive` runs such clients in several processes at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
IMAGE_VARIABLES = dict(
    word.split("=", 1)
    for word in (ROOT / "container/Dockerfile.server_gpu").read_text().split()
    if word.startswith("GLIBC_TUNABLES=")
)
"""Of the serving image's environment, what changes the server's speed."""
WORDS = 126
"""Of a text: with the tokenizer's two special tokens 128."""
VOCABULARY = "red blue green slow fast old small cat dog bird train engine signal track house"


def text(seed: int) -> str:
    """A text of 128 tokens."""
    return " ".join(random.Random(seed).choices(VOCABULARY.split(), k=WORDS))


def cores(low: float, high: float) -> tuple[str, ...]:
    """The command that keeps a process on a share of our cores; none on a small machine."""
    own = sorted(os.sched_getaffinity(0), key=physical_core)
    is_small = len(own) < 16 or shutil.which("taskset") is None
    share = own[int(low * len(own)) : int(high * len(own))]
    return () if is_small else ("taskset", "-c", ",".join(map(str, share)))


def physical_core(thread: int) -> tuple[int, int]:
    """Return what puts the hardware threads of one core side by side."""
    path = Path(f"/sys/devices/system/cpu/cpu{thread}/topology/thread_siblings_list")
    first = re.match(r"\d+", path.read_text()) if path.is_file() else None
    return (int(first[0]) if first else thread), thread


def drive(
    port: int,
    rows: int,
    processes: int,
    connections: int,
    seconds: float,
    *,
    is_plain: bool = False,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return texts a second of clients on the upper half of our cores, and what each process said.

    `connections`: of each process; `seconds`: of the load. `spans` are those of all. Raises
    ValueError where a client ends without an answer.
    """
    argv = (sys.executable, "-m", "tests.gpu.load", port, rows, connections, seconds)
    command = (*cores(1 / 2, 1), *map(str, argv), *(["plain"] if is_plain else []))
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(
                subprocess.Popen(
                    command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=variables
                )
            )
            for _ in range(processes)
        ]
        lines = [client.stdout.readline() for client in clients]
        if lines != ["ready\n"] * processes:
            raise ValueError("a client of the load ended before it began")
        for client in clients:
            client.stdin.write("\n")
            client.stdin.flush()
        lines = [client.stdout.readline() for client in clients]
    if not all(lines):
        raise ValueError("a client of the load ended: a request failed")
    results = [json.loads(line) for line in lines]
    times = [name for name in results[0] if name.endswith("_ms")]
    return {
        "rate": sum(result["texts"] / result["seconds"] for result in results),
        "spans": [span for result in results for span in result["spans"]],
        **{name: statistics.median(result[name] for result in results) for name in times},
    }


def http_request(rows: int, seed: int, is_plain: bool) -> bytes:
    from container.wire import text_request

    texts = [text(rows * seed + index) for index in range(rows)]
    if is_plain:
        body, kind = json.dumps({"inputs": texts}).encode(), "application/json"
    else:
        body, kind = text_request(texts, binary=True)
    head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Connection(asyncio.Protocol):
    """One connection, from the first request to the last answer."""

    def __init__(self, request: bytes, end: float) -> None:
        self._request, self._end = request, end
        self._answer = bytearray()
        self.spans: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self._transport = transport
        self._send()

    def data_received(self, data):
        self._answer += data
        try:
            is_whole = len(self._answer) >= _size(self._answer)
        except ValueError as fault:
            self.done.set_exception(fault)
            self._transport.close()
            return
        if is_whole:
            now = time.perf_counter()
            self.spans.append(now - self._begin)
            self._answer.clear()
            if now < self._end:
                self._send()
            else:
                self._transport.close()
                self.done.set_result(None)

    def connection_lost(self, fault):
        if not self.done.done():
            self.done.set_exception(fault or ConnectionError("the server has closed"))

    def _send(self):
        self._begin = time.perf_counter()
        self._transport.write(self._request)


async def run(port: int, requests: list[bytes], seconds: float) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    begin = time.perf_counter()
    pairs = [
        loop.create_connection(lambda r=request: Connection(r, begin + seconds), "127.0.0.1", port)
        for request in requests
    ]
    connections = [protocol for _, protocol in await asyncio.gather(*pairs)]
    await asyncio.gather(*(connection.done for connection in connections))
    spans = [span for connection in connections for span in connection.spans]
    return {
        "requests": len(spans),
        "seconds": time.perf_counter() - begin,
        "p50_ms": 1e3 * statistics.median(spans),
        "spans": [round(1e3 * span, 4) for span in spans],
    }


def run_alone(port: int, request: bytes, seconds: float) -> dict[str, float]:
    """One connection without an event loop, whose own time would count as the server's.

    Half of the time it sleeps until an answer comes, half it polls: the difference is what its
    core takes to wake.
    """
    begin = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sleeping = _spans(connection, request, begin + seconds / 2)
        connection.setblocking(False)
        polling = _spans(connection, request, begin + seconds)
    return {
        "requests": len(sleeping) + len(polling),
        "seconds": time.perf_counter() - begin,
        "p50_ms": 1e3 * statistics.median(sleeping),
        "spans": [round(1e3 * span, 4) for span in sleeping],
        "polling_p50_ms": 1e3 * statistics.median(polling),
    }


def _spans(connection: socket.socket, request: bytes, end: float) -> list[float]:
    """Return the seconds of each request until a time."""
    spans: list[float] = []
    while (sent := time.perf_counter()) < end:
        connection.sendall(request)
        answer = b""
        while len(answer) < _size(answer):
            with contextlib.suppress(BlockingIOError):
                answer += connection.recv(65536)
        spans.append(time.perf_counter() - sent)
    return spans


def _size(answer: bytes) -> int:
    """Return the bytes of a whole answer, or more than there are. Raises ValueError."""
    head = answer.find(b"\r\n\r\n")
    if head < 0:
        return len(answer) + 1
    lines = answer[:head].decode().lower().split("\r\n")
    if " 200 " not in f"{lines[0]} ":
        raise ValueError(answer.decode(errors="replace"))
    length = next(line for line in lines if line.startswith("content-length:"))
    return head + 4 + int(length.split(":")[1])


if __name__ == "__main__":
    port, rows, count = map(int, sys.argv[1:4])
    requests = [http_request(rows, seed, sys.argv[5:] == ["plain"]) for seed in range(count)]
    print("ready", flush=True)
    sys.stdin.readline()
    seconds = float(sys.argv[4])
    if count == 1:
        measured = run_alone(port, requests[0], seconds)
    else:
        import uvloop

        measured = uvloop.run(run(port, requests, seconds))
    print(json.dumps(measured | {"texts": rows * measured["requests"]}), flush=True)
