"""A small HTTP server in a thread, that answers as a test tells it to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

ANSWER = json.dumps(
    {"outputs": [{"name": "embedding", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 0.0]}]}
).encode()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to say.

    `close` ends the connection afterwards, unannounced; `silent` says nothing at all, `raw` just
    that.
    """

    status: int = 200
    body: bytes = ANSWER
    after_seconds: float = 0.0
    close: bool = False
    silent: bool = False
    headers: str = ""
    raw: bytes | None = None


@dataclass(kw_only=True)
class Server:
    """Its address, and what it was asked."""

    answer: Callable[[int], Answer]
    port: int = 0
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/invocations"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self.one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            line.partition(":")[0].lower(): line.partition(":")[2].strip()
            for line in head[1:]
            if line
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append((headers, body))
        answer = self.answer(len(self.requests))
        if answer.silent:
            return not answer.close
        if answer.raw is not None:
            writer.write(answer.raw)
            return False
        if answer.after_seconds:
            await asyncio.sleep(answer.after_seconds)
        length = (
            f"Content-Length: {len(answer.body)}\r\nContent-Type: "
            f"application/json\r\n{answer.headers}"
        )
        writer.write(f"HTTP/1.1 {answer.status} Said\r\n{length}\r\n".encode() + answer.body)
        await writer.drain()
        return not answer.close


@contextmanager
def serve(answer: Callable[[int], Answer] = lambda number: Answer()) -> Iterator[Server]:
    """A server for the time of a test; `answer` is told the number of the request, from 1 on."""
    server, ready, loop = Server(answer=answer), threading.Event(), asyncio.new_event_loop()

    async def run() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.port = listening.sockets[0].getsockname()[1]
        ready.set()
        await stopped.wait()
        listening.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    stopped = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(10)
        loop.close()
