"""The Python server's memory under the largest legal requests, one at a time and eight at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.child import process_trees
from benchmarks.context import Context
from benchmarks.measure import Measure, at_most, with_command
from benchmarks.servers.candidates import ours
from benchmarks.servers.fixtures import minilm
from benchmarks.servers.harness import Harness
from benchmarks.servers.running_server import Running
from benchmarks.servers.workload import Request
from benchmarks.servers.wrk import wrk_program

BODY_BYTES = 6_291_456
AT_ONCE = 8
PEAK, RETURNED = at_most(600.0), at_most(1.1)
LATER_SECONDS = 60.0
COMMAND = f"make bench BENCH=server_memory: MiniLM FP32, bodies of {BODY_BYTES:,} bytes"


def _body(texts: list[str]) -> bytes:
    return json.dumps({"inputs": texts}, ensure_ascii=False).encode()


BODIES: dict[str, Callable[[], bytes]] = {
    "one text of punctuation": lambda: _body(["!" * (BODY_BYTES - 20)]),
    "one text of letters": lambda: _body(["a" * (BODY_BYTES - 20)]),
    "one text of spaces": lambda: _body([" " * (BODY_BYTES - 20)]),
    "one text of CJK": lambda: _body(["中" * ((BODY_BYTES - 20) // 3)]),
    "128 texts of punctuation": lambda: _body(["!" * (BODY_BYTES // 128 - 8)] * 128),
}


def server_memory(context: Context) -> list[Measure]:
    """Measure the peak of each kind of body, and what is left a minute later."""
    folder = context.folder("server_memory")
    fixtures = minilm(context, folder)
    harness = Harness(folder=folder, wrk=wrk_program(folder, context.run))
    measures: list[Measure] = []
    with harness.start(ours(fixtures)) as servers:
        server = servers["ours"]
        for _ in range(20):
            server.candidate.request(Request(body=_body(["warm up"] * 32)))
        before = server.memory_mb()
        measures.append(Measure("before", before, "MB"))
        for name, make in BODIES.items():
            measures += _burst(server, name, make(), before)
    return with_command(COMMAND, measures)


def _burst(server: Running, name: str, body: bytes, before: float) -> Iterator[Measure]:
    for clients in (1, AT_ONCE):
        words = f"{name}, {clients} at once"
        with _Peak(server.process.pid) as peak, ThreadPoolExecutor(clients) as pool:
            futures = [
                pool.submit(server.candidate.request, Request(body=body), 120)
                for _ in range(clients)
            ]
            statuses = sorted(answer.result()[0] for answer in futures)
        deadline = time.monotonic() + LATER_SECONDS
        while (after := server.memory_mb()) > RETURNED.limit * before:
            if time.monotonic() > deadline:
                break
            time.sleep(1.0)
        print(f"  {words}: {statuses}, peak {peak.mb:.0f} MB, then {after:.0f} MB", flush=True)
        yield Measure(f"{words}: peak", peak.mb, "MB", PEAK)
        yield Measure(f"{words}: within a minute / before", after / before, "x", RETURNED)


class _Peak:
    """Samples the memory of a process and its children while a block runs."""

    def __init__(self, pid: int) -> None:
        self._pid, self._stop, self.mb = pid, threading.Event(), 0.0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.002):
            self.mb = max(self.mb, sum(map(_resident_mb, process_trees([self._pid]))))


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    except OSError:
        return 0.0
    return pages * 4096 / 1e6
