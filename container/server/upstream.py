"""HTTP to the server behind this one, which only this process asks, over connections it keeps."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import httptools

from container.server.types import DeadlinePassed, Response, Unavailable

IDLE_SECONDS = 2.0
"""Connections are kept shorter than uvicorn keeps them, so none is closed while it is reused."""
CONNECT_SECONDS = 5.0
UNREAD_BYTES = 64 * 1024
"""Of an answer that its reader leaves; beyond them the server is held back."""
DROPPED = {b"connection", b"content-length", b"content-type", b"transfer-encoding", b"keep-alive"}
"""Headers of answers that belong to their own connection, or to the answer's fields."""


class UpstreamGone(Unavailable):
    """The server does not listen, or ended its connection before its answer's end."""


class UpstreamRequest(NamedTuple):
    """A request, its parts already free of line ends."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = ""
    headers: Iterable[tuple[bytes, bytes]] = ()

    def to_bytes(self) -> bytes:
        """Return the request as HTTP/1.1."""
        lines = [f"{self.method} {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()]
        if self.content_type:
            lines.append(f"Content-Type: {self.content_type}\r\n".encode("latin-1"))
        lines += [b"%b: %b\r\n" % header for header in self.headers]
        lines.append(b"Content-Length: %d\r\n\r\n" % len(self.body))
        return b"".join((*lines, self.body))


class Upstream:
    """Sends requests to a port of this machine; used on one event loop."""

    def __init__(self, port: int, name: str) -> None:
        """`name` begins the sentences about the server, such as `Triton`."""
        self._port, self.name = port, name
        self._idle: list[UpstreamAnswer] = []
        self._open: set[UpstreamAnswer] = set()

    async def send(self, request: UpstreamRequest) -> UpstreamAnswer:
        """Send a request, and return the answer that is to come. Raises UpstreamGone."""
        answer = self._take_idle()
        if answer is None:
            answer = await self._connect()
        answer.send(request.to_bytes())
        return answer

    async def request(self, request: UpstreamRequest, seconds: float | None = None) -> Response:
        """Return a whole answer, whatever its status. Raises UpstreamGone and DeadlinePassed."""
        async with self.deadline(seconds):
            answer = await self.send(request)
            try:
                return await answer.read_whole()
            finally:
                answer.release()

    @asynccontextmanager
    async def deadline(
        self, seconds: float | None, end: float | None = None
    ) -> AsyncIterator[None]:
        """Bound what is awaited within; raises DeadlinePassed where that is the server's answer.

        `end`, on the clock of `time.monotonic`, is when the seconds are over; None: they begin now.
        """
        left = seconds if end is None else max(0.0, end - time.monotonic())
        try:
            async with asyncio.timeout(left):
                yield
        except TimeoutError as fault:
            raise DeadlinePassed(
                f"{self.name} did not answer within {seconds:g} seconds."
            ) from fault

    def close(self) -> None:
        """Close every connection."""
        for answer in tuple(self._open):
            answer.abort()

    def _take_idle(self) -> UpstreamAnswer | None:
        """Return the connection that was used last, unless the server may close it."""
        oldest = time.monotonic() - IDLE_SECONDS
        while self._idle:
            answer = self._idle.pop()
            if answer.idle_since > oldest:
                return answer
            answer.abort()
        return None

    async def _connect(self) -> UpstreamAnswer:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, answer = await loop.create_connection(
                    lambda: UpstreamAnswer(self, loop), "127.0.0.1", self._port
                )
        except OSError as fault:  # TimeoutError too
            raise UpstreamGone(self.no_response) from fault
        self._open.add(answer)
        return answer

    @property
    def no_response(self) -> str:
        """The sentence about a server that sends nothing."""
        return f"{self.name} does not answer; it is starting, or being started again."

    def keep(self, answer: UpstreamAnswer) -> None:
        """Keep a connection for the next request; called by it."""
        self._idle.append(answer)

    def forget(self, answer: UpstreamAnswer) -> None:
        """Forget a connection that was closed; called by it."""
        self._open.discard(answer)
        if answer in self._idle:
            self._idle.remove(answer)


class UpstreamAnswer(asyncio.Protocol):
    """A connection to the server, and the answer of the request that was sent on it last.

    What has come while its reader did something else is read in one piece.
    """

    def __init__(self, upstream: Upstream, loop: asyncio.AbstractEventLoop) -> None:
        self._upstream, self._loop = upstream, loop
        self._transport: Any = None
        self._parser: Any = None
        """None while no answer is to come."""
        self._waiter: asyncio.Future[None] | None = None
        self._pieces: list[bytes] = []
        self._size, self._most_unread = 0, math.inf
        self._is_paused = self._is_whole = self._is_lost = self._keeps = False
        self.status, self.content_type = 0, ""
        """Of the answer, once `begin` has returned."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.idle_since = 0.0

    def send(self, data: bytes) -> None:
        """Send a request's bytes."""
        self._parser = httptools.HttpResponseParser(self)
        self._is_whole, self._most_unread = False, UNREAD_BYTES
        self.status, self.content_type, self.headers = 0, "", []
        self._transport.write(data)

    async def begin(self) -> None:
        """Wait for status and headers. Raises UpstreamGone."""
        while not self.status:
            await self._wait(self._upstream.no_response)

    async def begin_within(self, seconds: float) -> None:
        """Wait for status and headers, but no longer; `begin` tells what came of it."""
        with suppress(TimeoutError, UpstreamGone):
            async with asyncio.timeout(seconds):
                await self.begin()

    async def read(self) -> bytes:
        """Return what has come of the body, or nothing at its end. Raises UpstreamGone."""
        while not self._pieces:
            if self._is_whole:
                return b""
            await self._wait(f"{self._upstream.name} ended before its answer did; try again.")
        pieces, self._pieces, self._size = self._pieces, [], 0
        if self._is_paused and not self._is_lost:
            self._is_paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read_whole(self) -> Response:
        """Return the whole answer. Raises UpstreamGone where the server ends before it does."""
        self._most_unread = math.inf
        await self.begin()
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return Response(self.status, body, self.content_type, tuple(self.headers))

    def release(self) -> None:
        """Give the connection back; an answer before its end closes it.

        By that an engine drops the request.
        """
        self._parser = None
        if self._is_whole and self._keeps and not self._pieces and not self._is_lost:
            self.idle_since = time.monotonic()
            self._upstream.keep(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._pieces = []
        self._transport.abort()

    async def _wait(self, reason: str) -> None:
        """Wait until more has come. Raises UpstreamGone with the reason where nothing will."""
        if self._is_lost:
            raise UpstreamGone(reason)
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
        self._upstream.forget(self)
        self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; httptools calls this and the methods below."""
        lower = name.lower()
        if lower == b"content-type":
            self.content_type = value.decode("latin-1")
        elif lower not in DROPPED:
            self.headers.append((lower, value))

    def on_headers_complete(self) -> None:
        """Tell the status."""
        self.status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        """Add a piece, and hold the server back while too many are unread."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._most_unread and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """End the answer."""
        self._is_whole, self._keeps = True, bool(self._parser.should_keep_alive())


def mark_seen(task: asyncio.Future[Any]) -> None:
    """Mark a task's fault as seen: whoever waits for it may have left."""
    if not task.cancelled():
        task.exception()
