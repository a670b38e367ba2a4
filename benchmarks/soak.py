"""An hour of requests, 300 a second, as fast as they go: our server's memory must not grow."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.context import Context
from benchmarks.measure import Measure, at_least, at_most, with_command
from benchmarks.servers.candidates import echo
from benchmarks.servers.harness import Harness
from benchmarks.servers.running_server import PING
from benchmarks.servers.workload import Request, binary, groups, kserve, plain, shuffled_texts
from benchmarks.servers.wrk import Load, requests_file, wrk_program

REQUESTS = 300 * 3600
SEGMENT_SECONDS, CLIENTS, LONGEST_SECONDS = 3, 64, 170
LEAVERS_PER_SECOND = 50
TOO_MANY_ROWS = 1025
GROWTH_SHARE, GROWTH_MIB = 1.05, 10
MIB = 2**20 / 1e6
COMMAND = (
    f"make bench BENCH=soak: {REQUESTS:,} mixed requests through the echo server by wrk "
    f"-c{CLIENTS}, while other clients leave early"
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Requests answered so far, and memory in 10^6 bytes."""

    requests: int
    memory_mb: float


def soak(context: Context) -> list[Measure]:
    """Measure memory over as many requests as an hour has.

    Raises ValueError when the server fails or is too slow for it.
    """
    folder, texts = context.folder("soak"), shuffled_texts(context.paths.tree)
    harness = Harness(folder=folder, wrk=wrk_program(folder, context.run))
    file = requests_file(mixed_requests(texts), folder / "mixed.requests")
    begin, count = time.monotonic(), 0
    loads: list[Load] = []
    samples: list[Sample] = []
    with harness.start(echo(context.paths)) as servers:
        server = servers["echo"]
        port = server.candidate.port
        with leaving_clients(port, texts) as left:
            while count < REQUESTS:
                if time.monotonic() - begin > LONGEST_SECONDS:
                    raise ValueError(f"{count:,} of {REQUESTS:,} requests in {LONGEST_SECONDS} s")
                load = harness.wrk.load(
                    file, port=port, connections=CLIENTS, seconds=SEGMENT_SECONDS, statuses=True
                )
                loads.append(load)
                count += load.requests
                samples.append(Sample(requests=count, memory_mb=server.memory_mb()))
    measures = [
        *growth(samples),
        Measure("requests", count, "", at_least(REQUESTS)),
        *_statuses(loads),
        Measure("clients that left", len(left), ""),
        Measure("seconds", time.monotonic() - begin, "s"),
    ]
    return with_command(COMMAND, measures)


def mixed_requests(texts: Sequence[str]) -> list[Request]:
    """Return a hundred requests: most are plain work, some large, some packed, some wrong."""
    gzipped = (("Content-Encoding", "gzip"),)
    lists = [plain([text]) for text in texts[70:74]]
    requests = [
        *(kserve([text]) for text in texts[:70]),
        *(kserve(group) for group in groups(texts, 16, 8)),
        *(binary(group) for group in groups(texts, 4, 8)),
        *(replace(r, body=gzip.compress(r.body, mtime=0), headers=gzipped) for r in lists),
        *[Request(body=b'{"inputs": ')] * 3,
        *[Request(body=b"{}", path="/nowhere")] * 2,
        *[Request(body=b"", method="GET")] * 2,
        plain(["a"] * TOO_MANY_ROWS),
        *[PING] * 2,
    ]
    return [requests[(index * 37) % len(requests)] for index in range(len(requests))]


@contextlib.contextmanager
def leaving_clients(port: int, texts: Sequence[str]) -> Iterator[list[int]]:
    """Let clients send a request, or half of one, and leave at once; the list grows with each."""
    left: list[int] = []
    over = threading.Event()

    def leave() -> None:
        while not over.wait(1 / LEAVERS_PER_SECOND):
            wire = kserve([texts[len(left) % len(texts)]]).wire()
            address = ("127.0.0.1", port)
            with (
                contextlib.suppress(OSError),
                socket.create_connection(address, 5) as client,
            ):
                client.sendall(wire if len(left) % 2 else wire[: len(wire) // 2])
            left.append(1)

    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    try:
        yield left
    finally:
        over.set()
        thread.join()


def growth(samples: Sequence[Sample]) -> list[Measure]:
    """Compare memory at the end with memory once a quarter of the requests was answered."""
    first = next(sample for sample in samples if sample.requests >= REQUESTS / 4)
    last, start = samples[-1], "the first quarter's end"
    share, mib = last.memory_mb / first.memory_mb, (last.memory_mb - first.memory_mb) / MIB
    return [
        Measure(f"memory at the end / at {start}", share, "x", at_most(GROWTH_SHARE)),
        Measure(f"memory grown since {start}", mib, "MiB", at_most(GROWTH_MIB)),
        Measure(f"RSS at {start}, {first.requests:,} requests", first.memory_mb, "MB"),
        Measure(f"RSS at the end, {last.requests:,} requests", last.memory_mb, "MB"),
    ]


def _statuses(loads: Sequence[Load]) -> list[Measure]:
    counts: Counter[int] = Counter()
    for load in loads:
        for status, count in load.statuses:
            counts[status] += count
    failed = sum(count for status, count in counts.items() if status >= 500)
    failed += sum(load.timeouts for load in loads)
    return [
        Measure("answers of 5xx, and timeouts", failed, "", at_most(0)),
        *(
            Measure(f"answers of {status} {http.client.responses[status]}", counts[status], "")
            for status in sorted(counts)
        ),
    ]
