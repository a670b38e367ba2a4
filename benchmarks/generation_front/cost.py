"""Processor time of the server before vLLM, by request and by event, and when a burst arrives.

An engine of steps stands behind it, and two processes of clients send all requests at once on new
connections, as `benchmarks.h200_generation` does. `python -m benchmarks.generation_front.cost ROOT
ROOT...` compares the servers of several trees, in random order.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Measure, of_rounds

ROOT = Path(__file__).resolve().parents[2]
ENGINE = Path(__file__).with_name("engine_program.py")
ENGINE_PORT = re.compile(r"for the engine on port (\d+)")
VARIABLES = {
    "SM_VLLM_SERVED_MODEL_NAME": "chat",
    "SM_VLLM_MAX_MODEL_LEN": "4096",
    "SM_VLLM_MAX_NUM_QUEUED_REQS": "1024",
    "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
}
PROMPT_TOKENS, CLIENTS, START_SECONDS = 512, 2, 30.0
STEP_SECONDS = 0.037
"""Of an 8B shape that answers 256 at once on an H200."""
BURST, STREAMS, EVENTS = 512, 256, 48


class Load(NamedTuple):
    """What one load took."""

    seconds: float
    """Processor time of the server."""
    first_ms: float
    """From the first client's start to the engine's first request."""
    last_ms: float


class Server(NamedTuple):
    """A running server and its engine."""

    pid: int
    port: int
    engine_port: int

    def processor_seconds(self) -> float:
        """Return the processor time of the server so far, without its engine's."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def engine_times(self) -> list[float]:
        """Return the monotonic times at which the engine got its requests."""
        url = f"http://127.0.0.1:{self.engine_port}/v1/models"
        with urllib.request.urlopen(url, timeout=10) as answer:
            times: list[float] = json.loads(answer.read())["times"]
        return times


def cost_measures(folder: Path, rounds: int) -> list[Measure]:
    """Return the costs of this tree's server."""
    found = costs((ROOT,), folder, rounds)[ROOT]
    return [of_rounds(f"the front's {name}", values, unit) for name, unit, values in found]


def costs(
    roots: Sequence[Path], folder: Path, rounds: int
) -> dict[Path, list[tuple[str, str, list[float]]]]:
    """Return name, unit and values of each cost of the servers of some trees."""
    loads: dict[Path, list[tuple[Load, Load]]] = {root: [] for root in roots}
    chance = random.Random(1)
    with ProcessPoolExecutor(CLIENTS) as clients:
        for _ in range(rounds):
            for root in chance.sample(roots, len(roots)):
                burst = _measure(root, folder, clients, BURST, 1)
                streams = _measure(root, folder, clients, STREAMS, EVENTS)
                loads[root].append((burst, streams))
    return {root: _costs(pairs) for root, pairs in loads.items()}


def _costs(pairs: Sequence[tuple[Load, Load]]) -> list[tuple[str, str, list[float]]]:
    """Two loads of other numbers of events tell a request from an event."""
    requests, events = [], []
    for burst, streams in pairs:
        request = burst.seconds / BURST  # and one event
        event = (streams.seconds - STREAMS * request) / (STREAMS * (EVENTS - 1))
        events.append(event * 1e6)
        requests.append((request - event) * 1e6)
    return [
        ("processor time of a request", "us", requests),
        ("processor time of an event", "us", events),
        (f"first of {BURST} requests to the engine", "ms", [burst.first_ms for burst, _ in pairs]),
        (f"last of {BURST} requests to the engine", "ms", [burst.last_ms for burst, _ in pairs]),
    ]


def _measure(
    root: Path, folder: Path, clients: ProcessPoolExecutor, requests: int, events: int
) -> Load:
    with _serve(root, folder / "front.log", events) as server:
        warm = partial(send_requests, server.port, 8, seed=0)
        list(clients.map(warm, [time.monotonic()] * CLIENTS))
        before, used = len(server.engine_times()), server.processor_seconds()
        begin = time.monotonic() + 0.5
        load = partial(send_requests, server.port, requests // CLIENTS)
        list(clients.map(load, [begin] * CLIENTS, range(1, CLIENTS + 1)))
        seconds = server.processor_seconds() - used
        times = server.engine_times()[before:]
    if len(times) != requests:
        raise ValueError(f"the engine got {len(times)} of {requests} requests")
    first, last = ((value - begin) * 1000 for value in (min(times), max(times)))
    return Load(seconds, first, last)


@contextmanager
def _serve(root: Path, log: Path, events: int) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    variables: Mapping[str, str] = {**os.environ, **VARIABLES, "SAGEMAKER_BIND_TO_PORT": str(port)}
    engine = (sys.executable, str(ENGINE), str(STEP_SECONDS), str(events))
    command = (sys.executable, "-m", "container.generation_front", *engine)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=root, env={**variables, "PYTHONPATH": str(root)}, stderr=output
        )
    try:
        end = time.monotonic() + START_SECONDS
        while "Warm: " not in (text := log.read_text()):
            if process.poll() is not None or time.monotonic() > end:
                raise ValueError(f"the server before the engine did not start: {text}")
            time.sleep(0.1)
        yield Server(process.pid, port, int(ENGINE_PORT.findall(text)[-1]))
    finally:
        process.terminate()
        process.wait()


def send_requests(port: int, count: int, begin: float, seed: int) -> None:
    """Stream so many answers at once, from a moment of the monotonic clock on."""
    chance = random.Random(seed)
    bodies = []
    for _ in range(count):
        prompt = [chance.randrange(128_000) for _ in range(PROMPT_TOKENS)]
        bodies.append(json.dumps({"model": "chat", "prompt": prompt, "stream": True}).encode())

    async def send_all() -> None:
        await asyncio.sleep(max(0.0, begin - time.monotonic()))
        await asyncio.gather(*(_stream(port, body) for body in bodies))

    asyncio.run(send_all())


async def _stream(port: int, body: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    writer.write(head + body)
    last = b""
    while part := await reader.read(1 << 16):
        last = (last + part)[-40:]
    writer.close()
    if b"data: [DONE]\n\n" not in last:
        raise ValueError(f"a stream is not whole: {last!r}")


def main(words: Sequence[str]) -> None:
    """Print the costs of the servers of some trees."""
    roots = tuple(Path(word).resolve() for word in words) or (ROOT,)
    folder = ROOT / "build" / "generation_front"
    folder.mkdir(parents=True, exist_ok=True)
    for root, found in costs(roots, folder, rounds=3).items():
        print(root)
        for name, unit, values in found:
            span = f"{min(values):.1f} to {max(values):.1f}"
            print(f"  {name}: {statistics.median(values):.1f} {unit} ({span})")


if __name__ == "__main__":
    main(sys.argv[1:])
