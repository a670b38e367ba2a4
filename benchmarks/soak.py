"""An hour of requests, 300 a second, as fast as they go.

Does our server's memory stay where it was?
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.measure import Measure
from benchmarks.servers.candidates import echo
from benchmarks.servers.harness import Harness, at_least, at_most
from benchmarks.servers.running_server import Running
from benchmarks.servers.workload import Request, binary, groups, kserve, plain, shuffled_texts
from benchmarks.servers.wrk import Load, requests_file, wrk_program
from roundhouse.paths import Paths
from roundhouse.processes import Processes

REQUESTS = 300 * 3600
SEGMENT_SECONDS, CLIENTS, LONGEST_SECONDS = 3, 64, 170
LEAVERS_PER_SECOND = 50
TOO_MANY_ROWS = 1025
GROWTH_SHARE, GROWTH_MIB = 1.05, 10
MIB = 2**20 / 1e6
COMMAND = (
    f"make bench BENCH=soak: {REQUESTS:,} requests of a mix through the echo server by wrk "
    f"-c{CLIENTS}, clients leaving beside"
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Requests answered so far, and memory in 10^6 bytes."""

    requests: int
    memory_mb: float


def soak(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """Memory over an hour-equivalent.

    Raises ValueError when the server fails or is too slow for it.
    """
    place = at.build / "bench" / "soak"
    harness = Harness(place=place, wrk=wrk_program(place, run))
    requests = requests_file(mixed_requests(shuffled_texts(at.tree)), place / "mix.requests")
    begin = time.monotonic()
    with (
        harness.start(echo(at)) as servers,
        leaving(servers["echo"], shuffled_texts(at.tree)) as left,
    ):
        loads: list[Load] = []
        samples: list[Sample] = []
        while sum(load.requests for load in loads) < REQUESTS:
            if time.monotonic() - begin > LONGEST_SECONDS:
                raise ValueError(
                    f"{sum(load.requests for load in loads):,} of {REQUESTS:,} requests in "
                    f"{LONGEST_SECONDS} s"
                )
            port = servers["echo"].candidate.port
            loads.append(
                harness.wrk.load(
                    requests, port=port, connections=CLIENTS, seconds=SEGMENT_SECONDS, statuses=True
                )
            )
            memory = servers["echo"].memory_mb()
            samples.append(Sample(requests=sum(load.requests for load in loads), memory_mb=memory))
    return [*growth(samples), *_answers(loads, len(left), time.monotonic() - begin)]


def mixed_requests(texts: Sequence[str]) -> list[Request]:
    """A hundred requests: most are plain work, some large, some packed, some wrong."""
    singles = [kserve([text]) for text in texts[:70]]
    many = [kserve(group) for group in groups(texts, 16, 8)] + [
        binary(group) for group in groups(texts, 4, 8)
    ]
    packed = [
        replace(one, body=gzip.compress(one.body, mtime=0), headers=(("Content-Encoding", "gzip"),))
        for one in (plain([text]) for text in texts[70:74])
    ]
    wrong = [
        *[Request(body=b'{"inputs": ') for _ in range(3)],
        *[Request(body=b"{}", path="/nowhere") for _ in range(2)],
        *[Request(body=b"", method="GET") for _ in range(2)],
        plain(["a"] * TOO_MANY_ROWS),
    ]
    health = [Request(body=b"", method="GET", path="/ping") for _ in range(2)]
    found = [*singles, *many, *packed, *wrong, *health]
    return [found[(place * 37) % len(found)] for place in range(len(found))]


@contextlib.contextmanager
def leaving(server: Running, texts: Sequence[str]) -> Iterator[list[int]]:
    """Clients that send a request, or half of one, and leave at once.

    The list grows by one for each.
    """
    left: list[int] = []
    over = threading.Event()

    def leave() -> None:
        while not over.wait(1 / LEAVERS_PER_SECOND):
            wire = kserve([texts[len(left) % len(texts)]]).wire()
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", server.candidate.port), 5) as client,
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
    """Memory at the end against memory once a quarter of the requests was answered."""
    first = next(one for one in samples if one.requests >= REQUESTS / 4)
    last = samples[-1]
    numbers = {"the first quarter's end": first, "the end": last}
    return [
        Measure(
            name=(
                "memory at the end / at the first "
                "quarter's end"
            ), value=last.memory_mb / first.memory_mb, unit="x",
            command=COMMAND, bar=at_most(GROWTH_SHARE),
        ),
        Measure(
            name=(
                "memory grown since the first "
                "quarter's end"
            ), value=(last.memory_mb - first.memory_mb) / MIB, unit="MiB",
            command=COMMAND, bar=at_most(GROWTH_MIB),
        ),
        *(
            Measure(name=(
                f"RSS at {words}, "
                f"{one.requests:,} requests"
            ), value=one.memory_mb, unit="MB", command=COMMAND)
            for words, one in numbers.items()
        ),
    ]  # fmt: skip


def _answers(loads: Sequence[Load], left: int, seconds: float) -> list[Measure]:
    counts: dict[int, int] = {}
    for load in loads:
        for status, count in load.statuses:
            counts[status] = counts.get(status, 0) + count
    failed = sum(count for status, count in counts.items() if status >= 500) + sum(
        load.timeouts for load in loads
    )
    return [
        Measure(
            name="requests", value=sum(load.requests for load in loads), unit="", command=COMMAND,
            bar=at_least(REQUESTS)
        ),
        Measure(name=(
            "answers of 5xx, and "
            "timeouts"
        ), value=failed, unit="", command=COMMAND, bar=at_most(0)),
        *(
            Measure(name=(
                f"answers of {status} "
                f"{http.client.responses[status]}"
            ), value=counts[status], unit="", command=COMMAND)
            for status in sorted(counts)
        ),
        Measure(name="clients that left", value=left, unit="", command=COMMAND),
        Measure(name="seconds", value=seconds, unit="s", command=COMMAND),
    ]  # fmt: skip
