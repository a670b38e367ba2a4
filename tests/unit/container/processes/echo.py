"""An engine that answers every text with the sum of its tokens, and HTTP clients of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from container.server.batching.batch import Limits
from container.server.batching.batcher import Batcher
from container.server.engines.engine import LinearCosts
from container.server.engines.tokens import Tokens

POISON = 13
"""Rows of so many tokens make the engine fail."""


class EchoEngine:
    """Float32 [rows, 2]: the sum of a row's ids, and its length."""

    slots, max_rows, sequence_buckets = 1, 32, None
    inline_rows = 0

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.go_on.set()
        self.running = threading.Event()
        """Set from the first batch on."""
        self.dead = False

    def prepare(self, rows: Sequence[Tokens]) -> list[Tokens]:
        return list(rows)

    def run(self, prepared: list[Tokens], slot: int) -> tuple[np.ndarray]:
        self.running.set()
        self.go_on.wait(30)
        if self.dead or any(len(row) == POISON for row in prepared):
            raise RuntimeError("poison")
        return (np.array([[row.ids.sum(), len(row)] for row in prepared], np.float32),)

    def warm_up(self) -> LinearCosts:
        return LinearCosts()

    def warm_up_inline(self) -> None: ...

    def close(self) -> None: ...


def batcher(engine: EchoEngine, *, run_seconds: float = math.inf, **arguments: Any) -> Batcher:
    limits = Limits(max_tokens=4096, queue_rows=64, run_seconds=run_seconds)
    return Batcher(engine=engine, probe=[tokens(1)], limits=limits, **arguments)


def tokens(*ids: int) -> Tokens:
    return Tokens(np.array(ids, np.int32))


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def rows(self) -> list[list[float]]:
        return json.loads(self.body)["outputs"]

    @property
    def sentence(self) -> str:
        return json.loads(self.body)["error"]


class Client:
    """One keep-alive connection."""

    @classmethod
    async def connect(cls, port: int) -> Client:
        client = cls()
        client.reader, client.writer = await asyncio.open_connection("127.0.0.1", port)
        OPEN.append(client)
        return client

    async def ask(self, *texts: str) -> Answer:
        self.send_texts(*texts)
        return await self.answer()

    async def get(self, path: str) -> Answer:
        self.send(f"GET {path}")
        return await self.answer()

    async def is_healthy(self) -> bool:
        return (await self.get("/ping")).status == 200

    async def metric_values(self) -> dict[str, float]:
        lines = (await self.get("/metrics")).body.decode().splitlines()
        samples = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in samples}

    async def until_workers_serve(self, count: int = 2) -> None:
        while (await self.metric_values())["roundhouse_http_processes"] < count:
            pass

    def send_texts(self, *texts: str) -> None:
        self.send("POST /invocations", json.dumps({"inputs": texts}).encode())

    def send(self, target: str, body: bytes = b"") -> None:
        head = f"{target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)

    async def answer(self) -> Answer:
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 30)
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        body = await asyncio.wait_for(self.reader.readexactly(length), 30)
        return Answer(int(head.split()[1]), body)

    def close(self) -> None:
        self.writer.close()


OPEN: list[Client] = []


async def close_clients() -> None:
    """Close every connection that a test has left open."""
    while OPEN:
        OPEN[-1].close()
        with contextlib.suppress(OSError):
            await OPEN.pop().writer.wait_closed()
