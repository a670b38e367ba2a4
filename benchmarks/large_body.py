"""A body of 1 GiB in JSON lines, as an asynchronous endpoint is given it: memory and time."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.context import Context
from benchmarks.measure import Bar, Measure, at_least, at_most, with_command
from benchmarks.servers.candidates import echo
from benchmarks.servers.harness import Harness
from benchmarks.servers.running_server import PING, Running
from benchmarks.servers.workload import shuffled_texts
from benchmarks.servers.wrk import wrk_program
from onboarding.serve_environment import python_server_environment

BODY_BYTES, ROWS_A_LINE, WORDS = 1 << 30, 50, 3
MOST_MB, PING_MS = 64.0, 1000.0
"""What the server may hold more than before, and how long `/ping` may take meanwhile."""
SAMPLE_SECONDS, READ_BYTES = 0.1, 1 << 20
COMMAND = (
    f"make bench BENCH=large_body: the Python server with the limits of an asynchronous endpoint, "
    f"rows of at most {WORDS} words, {ROWS_A_LINE} a line; the engine answers two numbers a row at "
    "once, nothing is tokenized"
)


@dataclass
class Watch:
    """What was seen of a server while it worked."""

    most_mb: float = 0.0
    slowest_ping_ms: float = 0.0
    pings: int = 0
    failed_pings: list[int] = field(default_factory=list)


def large_body(context: Context) -> list[Measure]:
    """Measure one request. Raises ValueError when it is not answered line by line."""
    folder = context.folder("large_body")
    file = folder / "rows.jsonl"
    rows = write_rows(file, shuffled_texts(context.paths.tree))
    variables = {**python_server_environment(asynchronous=True), "ECHO_WIDTH": "2"}
    candidate = echo(context.paths, "asynchronous", variables)
    harness = Harness(folder=folder, wrk=wrk_program(folder, context.run))
    with harness.start(candidate) as servers:
        server = servers[candidate.name]
        _ask(server, b'{"inputs": "warm"}\n' * 1000)
        before = server.held_mb()
        begin = time.monotonic()
        with _watching(server) as watch:
            lines, answered, size = _ask_file(server, file)
        seconds = time.monotonic() - begin
    sent = file.stat().st_size
    file.unlink()
    if answered != rows:
        raise ValueError(f"{rows:,} rows were sent, and {answered:,} answered")
    print(f"  {lines:,} lines, {rows:,} rows; before {before:.0f} MB, most {watch.most_mb:.0f} MB")
    held, none = at_most(MOST_MB), Bar(kind="exactly", limit=0)
    return with_command(
        COMMAND,
        [
            Measure("bytes of the request", sent, "bytes", at_least(BODY_BYTES)),
            Measure("rows answered", answered, "rows"),
            Measure("bytes of the answer", size, "bytes"),
            Measure("memory, most while it ran less before", watch.most_mb - before, "MB", held),
            Measure("seconds until the last byte of the answer", seconds, "s", at_most(900)),
            Measure("/ping meanwhile, slowest", watch.slowest_ping_ms, "ms", at_most(PING_MS)),
            Measure("/ping meanwhile, not 200", len(watch.failed_pings), "", none),
        ],
    )


def write_rows(file: Path, texts: Sequence[str]) -> int:
    """Write lines of short rows until they have the bytes of a body; return the number of rows."""
    words = itertools.cycle([" ".join(text.split()[:WORDS]) for text in texts])
    lines = [
        json.dumps({"inputs": list(itertools.islice(words, ROWS_A_LINE))}).encode() + b"\n"
        for _ in range(len(texts))
    ]
    size = count = 0
    with file.open("wb") as written:
        for line in itertools.cycle(lines):
            size, count = size + written.write(line), count + ROWS_A_LINE
            if size >= BODY_BYTES - len(lines[0]):
                break
        # Spaces between a document and the end of its line are JSON's own.
        written.write(b'{"inputs": "last"}' + b" " * (BODY_BYTES - size - 18))
    return count + 1


def _ask(server: Running, body: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.candidate.port, timeout=60)
    connection.request("POST", "/invocations", body, {"Content-Type": "application/jsonlines"})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    if response.status != 200:
        raise ValueError(f"{response.status} {text[:300]!r}")


def _ask_file(server: Running, file: Path) -> tuple[int, int, int]:
    """Send a file, and return the lines, rows and bytes of its answer; neither is held whole."""
    connection = http.client.HTTPConnection("127.0.0.1", server.candidate.port, timeout=900)
    with file.open("rb") as body:
        headers = {
            "Content-Type": "application/jsonlines",
            "Content-Length": str(file.stat().st_size),
        }
        connection.request("POST", "/invocations", body, headers)
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"{response.status} {response.read()[:300]!r}")
        lines = rows = size = 0
        for line in response:
            lines, size = lines + 1, size + len(line)
            rows += line.count(b"[") - 1
    connection.close()
    return lines, rows, size


@contextmanager
def _watching(server: Running) -> Iterator[Watch]:
    """Read the server's memory and ask `/ping` until the block ends."""
    watch, over = Watch(), threading.Event()

    def look() -> None:
        while not over.wait(SAMPLE_SECONDS):
            watch.most_mb = max(watch.most_mb, server.held_mb())
            begin = time.monotonic()
            status = server.candidate.request(PING)[0]
            took = (time.monotonic() - begin) * 1000
            watch.slowest_ping_ms = max(watch.slowest_ping_ms, took)
            watch.pings += 1
            if status != 200:
                watch.failed_pings.append(status)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()
