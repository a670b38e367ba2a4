"""12,000 hostile requests against each server, while others ask it what is right."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.context import Context
from benchmarks.hostile.clients import Tally, answer, ask_all, leave_all, throw_all
from benchmarks.hostile.requests import (
    TEXTS,
    VALID,
    deep_requests,
    hostile_requests,
    lying_requests,
    smuggling_attempts,
    wire_noise,
)
from benchmarks.measure import Bar, Measure, at_least, at_most, with_command
from benchmarks.servers.candidates import ours, triton
from benchmarks.servers.fixtures import minilm
from benchmarks.servers.harness import Harness
from benchmarks.servers.running_server import Candidate
from benchmarks.servers.wrk import wrk_program

SEED = 4
BODIES, LIARS, DEEP, NOISE, LEAVERS = 8500, 2000, 100, 1000, 400
WARM_UP = 1000
INNOCENTS, PAUSE_SECONDS = 4, 0.02
LATER_SECONDS = 60.0
LEAST_COSINE = 0.9999
NONE, MEMORY = Bar(kind="exactly", limit=0), at_most(1.1)
COMMAND = "make bench BENCH=hostile: MiniLM FP32, clients and server on the same cores"


@dataclass
class Innocents:
    """Clients that send the right request all the time, and what they got."""

    port: int
    head: bytes = b"POST /invocations HTTP/1.1\r\nHost: x\r\n"
    right: list[float] = field(default_factory=list)
    answers: int = 0
    failed: list[str] = field(default_factory=list)
    changed: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Ask on one connection until `stop`; the first answer of all is the right one."""
        body = json.dumps(TEXTS).encode()
        framing = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        request = self.head + framing + body
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while not stop.is_set():
            writer.write(request)
            try:
                status, content, _ = await asyncio.wait_for(answer(reader), 60)
            except (TimeoutError, asyncio.IncompleteReadError, OSError) as fault:
                self.failed.append(repr(fault))
                with contextlib.suppress(OSError):
                    reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                continue
            if status != 200:
                self.failed.append(f"{status} {content[:200]!r}")
            else:
                self._compare(json.loads(content)["outputs"][0]["data"])
            await asyncio.sleep(PAUSE_SECONDS)
        writer.close()

    def _compare(self, values: list[float]) -> None:
        self.right = self.right or values
        product = sum(one * other for one, other in zip(self.right, values, strict=True))
        lengths = sum(one * one for one in self.right) * sum(one * one for one in values)
        self.answers += 1
        self.changed += product < LEAST_COSINE * lengths**0.5


def hostile(context: Context) -> list[Measure]:
    """Measure crashes, innocent requests that failed or changed, and memory a minute later."""
    folder = context.folder("hostile")
    fixtures = minilm(context, folder)
    harness = Harness(folder=folder, wrk=wrk_program(folder, context.run))
    candidates = (ours(fixtures), triton(fixtures))
    return with_command(
        COMMAND, [measure for one in candidates for measure in _server(harness, one)]
    )


def _server(harness: Harness, candidate: Candidate) -> Iterator[Measure]:
    name = candidate.name
    with harness.start(candidate) as servers:
        server = servers[name]
        asyncio.run(_warm_up(candidate.port))
        before = server.held_mb()
        tally, innocents = asyncio.run(_attack(candidate.port))
        after = memory_later(server.held_mb, before)
        crashed = server.process.poll() is not None
    yield from outcome(name, tally, innocents, (before, after), crashes=int(crashed))


def outcome(
    name: str, tally: Tally, innocents: Innocents, memory_mb: tuple[float, float], *, crashes: int
) -> Iterator[Measure]:
    """Print what went wrong, and give the measures; memory is before, and a minute later."""
    before, after = memory_mb
    for sentence in (*tally.wrong[:5], *innocents.failed[:5]):
        print(f"  {name}: {sentence[:600]}")
    statuses = ", ".join(f"{status}: {count}" for status, count in sorted(tally.statuses.items()))
    print(f"  {name}: {tally.sent} sent, {statuses}; memory {before:.0f} MB, then {after:.0f} MB")
    yield Measure(f"{name}: hostile requests", tally.sent, "", at_least(12_000))
    yield Measure(f"{name}: crashes", crashes, "", NONE)
    yield Measure(f"{name}: wrong answers to hostile requests", len(tally.wrong), "", NONE)
    yield Measure(f"{name}: innocent requests answered", innocents.answers, "")
    yield Measure(f"{name}: innocent requests failed", len(innocents.failed), "", NONE)
    yield Measure(f"{name}: innocent requests changed", innocents.changed, "", NONE)
    yield Measure(f"{name}: memory within a minute / before", after / before, "x", MEMORY)


async def _warm_up(port: int) -> None:
    """Run all code once, so that what is allocated for good is there before memory is read."""
    await ask_all(port, hostile_requests(SEED + 1, WARM_UP, TEXTS), Tally())
    await ask_all(port, deep_requests(6), Tally())


async def _attack(port: int) -> tuple[Tally, Innocents]:
    tally, innocents = Tally(), Innocents(port)
    async with asking(innocents):
        await ask_all(port, hostile_requests(SEED, BODIES, TEXTS), tally)
        await ask_all(port, lying_requests(SEED, LIARS), tally)
        await ask_all(port, deep_requests(DEEP), tally)
        await throw_all(port, wire_noise(SEED, NOISE), tally)
        await throw_all(port, smuggling_attempts(), tally)
        await leave_all(port, [VALID] * LEAVERS, tally)
    return tally, innocents


@contextlib.asynccontextmanager
async def asking(innocents: Innocents) -> AsyncIterator[None]:
    """Have the innocents ask until the block ends, which the last of them survives."""
    stop = asyncio.Event()
    clients = [asyncio.ensure_future(innocents.run(stop)) for _ in range(INNOCENTS)]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*clients)


def memory_later(memory_mb: Callable[[], float], before: float) -> float:
    """Return the memory once it is back, or as it is a minute later."""
    deadline = time.monotonic() + LATER_SECONDS
    while (memory := memory_mb()) > MEMORY.limit * before and time.monotonic() < deadline:
        time.sleep(1.0)
    return memory
