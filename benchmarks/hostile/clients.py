"""Clients that misbehave, over plain sockets of one event loop."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

SILENCE_SECONDS = 0.25
"""How long a client waits for more before it goes."""
ANSWER_SECONDS = 40.0
FINE = {100, 200, 400, 404, 405, 408, 409, 413, 415, 422, 431}
OWN_TIMEOUT = b"timeout"
"""In requests that give themselves so little time that 503 is the right answer."""


@dataclass
class Tally:
    """What was sent and what came back.

    `wrong` are sentences about answers that no client should get.
    """

    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def take(self, request: bytes, status: int, body: bytes, *, is_head: bool = False) -> None:
        """Judges one answer: no 5xx, no traceback, one sentence in every refusal."""
        self.statuses[status] += 1
        is_fine = status in FINE or (status == 503 and OWN_TIMEOUT in request)
        if not is_fine or (status >= 400 and not is_head and not _is_sentence(body)):
            self.wrong.append(f"{request[:300]!r}... -> {status} {body[:300]!r}")


def _is_sentence(body: bytes) -> bool:
    try:
        document = json.loads(body)
    except ValueError:
        return False
    return (
        list(document) == ["error"]
        and bool(document["error"])
        and "Traceback" not in document["error"]
    )


async def answer(reader: asyncio.StreamReader, *, is_head: bool = False) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection goes on."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status, headers = (
        int(head.split()[1]),
        dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line),
    )
    length = 0 if is_head or status == 100 else int(headers["content-length"])
    return status, await reader.readexactly(length), headers.get("connection") != "close"


async def ask_all(
    port: int, requests: Iterable[tuple[str, bytes]], tally: Tally, *, clients: int = 16
) -> None:
    """Well-framed requests on connections that stay: each gets exactly one answer."""
    todo = iter(requests)

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for method, request in todo:
            writer.write(request)
            tally.sent += 1
            try:
                status, body, goes_on = await asyncio.wait_for(
                    answer(reader, is_head=method == "HEAD"), ANSWER_SECONDS
                )
            except (TimeoutError, asyncio.IncompleteReadError, OSError) as fault:
                tally.wrong.append(f"{request[:300]!r}... -> no answer: {fault!r}")
                goes_on = False
            else:
                tally.take(request, status, body, is_head=method == "HEAD")
            if not goes_on:
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))


async def throw_all(
    port: int,
    throws: Iterable[bytes],
    tally: Tally,
    *,
    clients: int = 48,
    silence_seconds: float = SILENCE_SECONDS,
) -> list[list[int]]:
    """Bytes, each on a connection of its own, left when the server ends it or is silent.

    Gives the statuses of each.
    """
    todo, found = iter(throws), []

    async def client() -> None:
        for data in todo:
            tally.sent += 1
            found.append(await _thrown(port, data, tally, silence_seconds))

    await asyncio.gather(*(client() for _ in range(clients)))
    return found


async def _thrown(port: int, data: bytes, tally: Tally, silence_seconds: float) -> list[int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses: list[int] = []
    try:
        writer.write(data)
        while True:
            status, body, _ = await asyncio.wait_for(answer(reader), silence_seconds)
            tally.take(data, status, body)
            statuses.append(status)
    except (TimeoutError, asyncio.IncompleteReadError, OSError):
        return statuses
    finally:
        writer.close()


async def leave_all(
    port: int, requests: Iterable[bytes], tally: Tally, *, clients: int = 16
) -> None:
    """Clients that close their side or reset the connection.

    In the middle of a request or before its answer.
    """
    todo = iter(enumerate(requests))

    async def client() -> None:
        for number, data in todo:
            tally.sent += 1
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data if number % 3 else data[: len(data) // 2])
            if number % 2:
                writer.write_eof()
            else:
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, linger
                )
                writer.transport.abort()
            writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))


async def drip(port: int, data: bytes, tally: Tally) -> int:
    """Sends a byte at a time until the server answers; gives the status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    tally.sent += 1
    coming = asyncio.ensure_future(answer(reader))
    try:
        for place in range(len(data)):
            writer.write(data[place : place + 1])
            if (await asyncio.wait({coming}, timeout=0.1))[0]:
                break
        status, body, _ = await asyncio.wait_for(coming, ANSWER_SECONDS)
        tally.take(data, status, body)
        return status
    finally:
        writer.close()


async def never_read(port: int, request: bytes, tally: Tally) -> bool:
    """Pipelines requests without reading an answer; gives whether the server ended it."""
    quiet = socket.socket()
    quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    quiet.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(quiet, ("127.0.0.1", port))
    try:
        for _ in range(100_000):
            tally.sent += 1
            await asyncio.wait_for(loop.sock_sendall(quiet, request), ANSWER_SECONDS)
    except TimeoutError:
        return False
    except OSError:
        return True
    finally:
        quiet.close()
    return False
