"""A small HTTP server in a thread, whose answers a test decides."""

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
    """An answer: `close` ends the connection after it, `silent` sends none, `raw` just that."""

    status: int = 200
    body: bytes = ANSWER
    after_seconds: float = 0.0
    close: bool = False
    silent: bool = False
    headers: str = ""
    raw: bytes | None = None


@dataclass(kw_only=True)
class Server:
    """Its address, and the requests that came."""

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
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [line.partition(":") for line in lines[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in pairs}
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
        fields = f"Content-Length: {len(answer.body)}\r\nContent-Type: application/json\r\n"
        head = f"HTTP/1.1 {answer.status} Said\r\n{fields}{answer.headers}\r\n"
        writer.write(head.encode() + answer.body)
        await writer.drain()
        return not answer.close


@contextmanager
def serve(answer: Callable[[int], Answer] = lambda number: Answer()) -> Iterator[Server]:
    """Serve for the time of a test; `answer` takes the number of the request, from 1 on."""
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
