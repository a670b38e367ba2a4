"""The engine's HTTP port, which only this process asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import httptools

from container.generation_front.requests import JSON_TYPE
from container.server.types import DeadlinePassed, Unavailable

IDLE_SECONDS = 2.0
"""Connections are kept shorter than uvicorn keeps them, so none is closed while it is reused."""
CONNECT_SECONDS = 5.0
UNREAD_BYTES = 64 * 1024
"""Of an answer that its reader leaves; beyond them the engine is held back."""
NO_RESPONSE = "The engine does not answer; it is starting, or being started again."
BROKEN = "The engine ended before its answer did; try again."


class EngineGone(Unavailable):
    """The engine does not listen, or ended its connection before its answer's end."""


class Answer(NamedTuple):
    """A whole answer of the engine."""

    status: int
    body: bytes
    content_type: str


class Engine:
    """Sends requests to the engine; used on one event loop."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._host, self._port = host, port
        self._idle: list[EngineAnswer] = []
        self._open: set[EngineAnswer] = set()

    async def send(self, path: str, body: bytes = b"", method: str = "POST") -> EngineAnswer:
        """Send a request, and return the answer that is to come. Raises EngineGone."""
        answer = self._take_idle()
        if answer is None:
            answer = await self._connect()
        lines = f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
        if method != "GET":
            lines += f"Content-Type: {JSON_TYPE}\r\nContent-Length: {len(body)}\r\n"
        answer.send(b"".join((lines.encode(), b"\r\n", body)))
        return answer

    async def request(
        self, method: str, path: str, body: bytes = b"", seconds: float | None = None
    ) -> Answer:
        """Return a whole answer, whatever its status. Raises EngineGone and DeadlinePassed."""
        async with deadline(seconds):
            answer = await self.send(path, body, method)
            try:
                return await answer.read_whole()
            finally:
                answer.release()

    def close(self) -> None:
        """Close every connection."""
        for answer in tuple(self._open):
            answer.abort()

    def _take_idle(self) -> EngineAnswer | None:
        """Return the connection that was used last, unless the engine may close it."""
        oldest = time.monotonic() - IDLE_SECONDS
        while self._idle:
            answer = self._idle.pop()
            if answer.idle_since > oldest:
                return answer
            answer.abort()
        return None

    async def _connect(self) -> EngineAnswer:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, answer = await loop.create_connection(
                    lambda: EngineAnswer(self, loop), self._host, self._port
                )
        except OSError as fault:  # TimeoutError too
            raise EngineGone(NO_RESPONSE) from fault
        self._open.add(answer)
        return answer

    def keep(self, answer: EngineAnswer) -> None:
        """Keep a connection for the next request; called by it."""
        self._idle.append(answer)

    def forget(self, answer: EngineAnswer) -> None:
        """Forget a connection that was closed; called by it."""
        self._open.discard(answer)
        if answer in self._idle:
            self._idle.remove(answer)


class EngineAnswer(asyncio.Protocol):
    """A connection to the engine, and the answer of the request that was sent on it last.

    What has come while its reader did something else is read in one piece.
    """

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine, self._loop = engine, loop
        self._transport: Any = None
        self._parser: Any = None
        """None while no answer is to come."""
        self._waiter: asyncio.Future[None] | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_paused = self._is_whole = self._is_lost = self._keeps = False
        self.status, self.content_type = 0, JSON_TYPE
        """Of the answer, once `begin` has returned."""
        self.idle_since = 0.0

    def send(self, data: bytes) -> None:
        """Send a request's bytes."""
        self._parser = httptools.HttpResponseParser(self)
        self._is_whole = False
        self.status, self.content_type = 0, JSON_TYPE
        self._transport.write(data)

    async def begin(self) -> None:
        """Wait for status and headers. Raises EngineGone."""
        while not self.status:
            await self._wait(NO_RESPONSE)

    async def begin_within(self, seconds: float) -> None:
        """Wait for status and headers, but no longer; `begin` tells what came of it."""
        with suppress(TimeoutError, EngineGone):
            async with asyncio.timeout(seconds):
                await self.begin()

    async def read(self) -> bytes:
        """Return what has come of the body, or nothing at its end. Raises EngineGone."""
        while not self._pieces:
            if self._is_whole:
                return b""
            await self._wait(BROKEN)
        pieces, self._pieces, self._size = self._pieces, [], 0
        if self._is_paused and not self._is_lost:
            self._is_paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read_whole(self) -> Answer:
        """Return the whole answer. Raises EngineGone where the engine ends before it does."""
        await self.begin()
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return Answer(self.status, b"".join(pieces), self.content_type)

    def release(self) -> None:
        """Give the connection back; an answer before its end closes it.

        By that the engine drops the request.
        """
        self._parser = None
        if self._is_whole and self._keeps and not self._pieces and not self._is_lost:
            self.idle_since = time.monotonic()
            self._engine.keep(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._pieces = []
        self._transport.abort()

    async def _wait(self, reason: str) -> None:
        """Wait until more has come. Raises EngineGone with the reason where nothing will."""
        if self._is_lost:
            raise EngineGone(reason)
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; asyncio calls this and the next two methods."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read on in the answer; nothing comes without a request."""
        parser = self._parser
        try:
            if parser is not None:
                parser.feed_data(data)
        except httptools.HttpParserError:
            parser = None
        if parser is None:
            self._transport.abort()
        self._wake()

    def connection_lost(self, fault: Exception | None) -> None:
        """Tell who waits."""
        self._is_lost, self._parser = True, None
        self._engine.forget(self)
        self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the content type; httptools calls this and the methods below."""
        if name.lower() == b"content-type":
            self.content_type = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Tell the status."""
        self.status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        """Add a piece, and hold the engine back while too many are unread."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > UNREAD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """End the answer."""
        self._is_whole, self._keeps = True, bool(self._parser.should_keep_alive())


@asynccontextmanager
async def deadline(seconds: float | None, end: float | None = None) -> AsyncIterator[None]:
    """Bound what is awaited within; raises DeadlinePassed where that is the engine's answer.

    `end`, on the clock of `time.monotonic`, is when the seconds are over; None: they begin now.
    """
    left = seconds if end is None else max(0.0, end - time.monotonic())
    try:
        async with asyncio.timeout(left):
            yield
    except TimeoutError as fault:
        raise DeadlinePassed(f"The engine did not answer within {seconds:g} seconds.") from fault
