"""What the way between HTTP processes and the engine's owner costs the owner.

CPU microseconds per request, by payload.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import shared_memory
from typing import Any

import numpy as np
import uvloop

from container.server.engines.tokens import Tokens
from container.server.processes import frames
from container.server.processes.channel import EngineChannel
from container.server.processes.worker_session import WorkerSession
from container.server.types import Arrays

SIZE = 384
TOKENS = 16
OUTSTANDING = 32
RING_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One point: microseconds of the owner's CPU per request, and what went through."""

    workers: int
    rows: int
    columns: int
    shared_memory: bool
    owner_microseconds: float
    front_microseconds: float
    requests_per_second: float


class Echo:
    """Answers all requests of one turn of the event loop with views of one array."""

    is_broken = False
    waiting = 0

    def __init__(self, columns: int) -> None:
        self._answers = np.random.default_rng(0).random((4096, columns), dtype=np.float32)
        self._waiting: list[tuple[int, asyncio.Future[Arrays]]] = []
        self._loop = asyncio.get_running_loop()

    def refuse(self, rows: int) -> None:
        """Takes all."""

    def submit(
        self, rows: Sequence[Any], *, deadline: float | None = None
    ) -> asyncio.Future[Arrays]:
        """An answer of as many rows."""
        if not self._waiting:
            self._loop.call_soon(self._answer)
        future = self._loop.create_future()
        self._waiting.append((len(rows), future))
        return future

    def _answer(self) -> None:
        place = 0
        for rows, future in self._waiting:
            if not future.done():
                future.set_result((self._answers[place : place + rows],))
            place = (place + rows) % 2048
        self._waiting.clear()


class RingWorkerSession(WorkerSession):
    """Puts answers into shared memory and sends only where.

    The cheapest form, which never asks whether the place is free.
    """

    def __init__(self, ring: shared_memory.SharedMemory, **arguments: Any) -> None:
        super().__init__(**arguments)
        assert ring.buf is not None
        self._ring, self._place = ring.buf, 0

    def _answer(self, identity: int, future: asyncio.Future[Arrays]) -> None:
        if self._running.pop(identity, None) is None or future.cancelled():
            return
        (array,) = future.result()
        begin = self._place if self._place + array.nbytes <= RING_BYTES else 0
        self._ring[begin : begin + array.nbytes] = array.tobytes()
        self._place = begin + array.nbytes
        self._send(
            frames.HEADER.pack(32, frames.ANSWER, 0, len(array), array.shape[1], identity, begin)
        )


class RingEngineChannel(EngineChannel):
    """Copies answers out of shared memory, so that their places may be used again."""

    def __init__(self, ring: shared_memory.SharedMemory, **arguments: Any) -> None:
        super().__init__(**arguments)
        assert ring.buf is not None
        self._ring = ring.buf

    def data_received(self, data: bytes) -> None:
        """Answers are read from the ring."""
        for frame in self._frame_splitter.split(data):
            request = self._take(frame.id) if frame.kind == frames.ANSWER else None
            if request is None:
                self._receive(frame)
                continue
            count = frame.parts * frame.rows
            array = np.frombuffer(self._ring, np.float32, count, int(frame.number)).reshape(
                frame.parts, frame.rows
            )
            request.set_result((array.copy(),))


async def worker(descriptor: int, rows: int, seconds: float, ring: str | None) -> None:
    """One HTTP process without HTTP.

    Keeps requests under way for a while, then prints requests and its CPU seconds.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    held = None if ring is None else shared_memory.SharedMemory(ring)
    arguments: dict[str, Any] = {
        "max_rows": 1 << 20,
        "changed": lambda channel: ready.set() if channel.state == frames.READY else None,
    }
    factory = (
        (lambda: EngineChannel(**arguments))
        if held is None
        else (lambda: RingEngineChannel(held, **arguments))
    )
    _, channel = await loop.create_unix_connection(factory, sock=socket.socket(fileno=descriptor))
    await ready.wait()
    request = [Tokens(np.arange(TOKENS, dtype=np.int32)) for _ in range(rows)]
    end, done = loop.time() + seconds, 0

    async def ask() -> None:
        nonlocal done
        while loop.time() < end:
            await channel.submit(request)
            done += 1

    begin = time.process_time()
    await asyncio.gather(*(ask() for _ in range(OUTSTANDING)))
    print(done, time.process_time() - begin)
    channel.close()


async def point(
    *, workers: int, rows: int, columns: int = SIZE, ring: bool = False, seconds: float = 2.0
) -> Cost:
    """One measured point: real processes, an echo instead of an engine."""
    loop = asyncio.get_running_loop()
    backend = Echo(columns)
    processes, sessions, rings = [], [], []

    async def none() -> bytes:
        return b""

    arguments: dict[str, Any] = {
        "state": frames.LOADING,
        "backend": None,
        "acknowledged": lambda state: None,
        "engine_broke": lambda: None,
        "failed": print,
        "all_metric_values": none,
    }
    for _ in range(workers):
        ours, theirs = socket.socketpair()
        name = ""
        if ring:
            rings.append(shared_memory.SharedMemory(create=True, size=RING_BYTES))
            name = rings[-1].name
        words = [
            sys.executable,
            "-m",
            "benchmarks.servers.programs.frames",
            "--front",
            str(theirs.fileno()),
        ]
        words += ["--rows", str(rows), "--seconds", str(seconds), "--ring", name]
        processes.append(
            subprocess.Popen(words, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True)
        )
        theirs.close()
        factory = (
            (lambda: RingWorkerSession(rings[-1], **arguments))
            if ring
            else (lambda: WorkerSession(**arguments))
        )
        _, session = await loop.create_unix_connection(factory, sock=ours)
        sessions.append(session)
    await asyncio.sleep(1.5)
    begin, clock = time.process_time(), time.perf_counter()
    for session in sessions:
        session.send_state(frames.READY, backend)
    for session in sessions:
        await session.lost.wait()
    spent, took = time.process_time() - begin, time.perf_counter() - clock
    listed = [process.communicate()[0].split() for process in processes]
    for memory in rings:
        memory.close()
        with contextlib.suppress(FileNotFoundError):  # the front's own tracker has unlinked it
            memory.unlink()
    done = sum(int(words[0]) for words in listed)
    front_spent = sum(float(words[1]) for words in listed)
    return Cost(
        workers=workers,
        rows=rows,
        columns=columns,
        shared_memory=ring,
        owner_microseconds=spent / done * 1e6,
        front_microseconds=front_spent / done * 1e6,
        requests_per_second=done / took,
    )


def main() -> None:
    """Prints the table of the decision, or is one of the fronts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--front", type=int)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--ring", default="")
    given = parser.parse_args()
    if given.worker is not None:
        uvloop.run(worker(given.worker, given.rows, given.seconds, given.ring or None))
        return
    for rows, columns in ((1, 384), (16, 384), (1, 16384), (16, 16384)):
        for ring in (False, True, False, True):
            print(
                uvloop.run(
                    point(workers=2, rows=rows, columns=columns, ring=ring, seconds=given.seconds)
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
