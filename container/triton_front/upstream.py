"""HTTP to Triton's SageMaker port, over connections that stay open between requests.

A client that leaves changes nothing here: Triton is always let finish, so it never sees a
connection that ends in the middle of a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

import httptools

from container.server.http.messages import Response
from container.server.types import Unavailable

DROPPED = {b"connection", b"content-length", b"content-type", b"transfer-encoding", b"keep-alive"}
"""Headers of Triton's answers that belong to its own connection, or to the answer's fields."""
REPEATED_PATHS = ("/invocations", "/invoke", "/ping", "/metrics")
"""What may be asked a second time where the first connection ended."""


class TritonGone(Unavailable):
    """Triton does not listen, or ended its connection before it answered."""


def mark_seen(asking: asyncio.Future[Response]) -> None:
    """Mark a fault as seen: the client that asked may have left."""
    if not asking.cancelled():
        asking.exception()


class TritonRequest(NamedTuple):
    """A request to Triton, its parts already free of line ends."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = ""
    headers: Iterable[tuple[bytes, bytes]] = ()

    def to_bytes(self) -> bytes:
        """Return the request as HTTP/1.1."""
        lines = [f"{self.method} {self.path} HTTP/1.1\r\nHost: triton\r\n".encode()]
        if self.content_type:
            lines.append(f"Content-Type: {self.content_type}\r\n".encode("latin-1"))
        lines += [b"%b: %b\r\n" % header for header in self.headers]
        lines.append(b"Content-Length: %d\r\n\r\n" % len(self.body))
        return b"".join((*lines, self.body))


class TritonClient:
    """Sends requests to Triton; used on one event loop."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._host, self._port = host, port
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()
        self._closed = False

    async def request(self, request: TritonRequest) -> Response:
        """Return Triton's answer, whatever its status. Raises TritonGone.

        A connection that ended while it was idle is replaced once, and never for a request that
        loads or unloads a model.
        """
        data, reused = request.to_bytes(), bool(self._idle)
        try:
            return await self._exchange(data)
        except TritonGone:
            if not reused or not request.path.endswith(REPEATED_PATHS):
                raise
            self._drop_idle()
            return await self._exchange(data)

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        for connection in tuple(self._all):
            connection.close()

    async def _exchange(self, data: bytes) -> Response:
        connection = self._idle.pop() if self._idle else await self._connect()
        return await connection.send(data)

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: _Connection(self, loop), self._host, self._port
            )
        except OSError as fault:
            raise TritonGone("Triton does not listen; try again in a second.") from fault
        self._all.add(connection)
        return connection

    def _drop_idle(self) -> None:
        """Close what Triton may have closed too."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def now_idle(self, connection: _Connection) -> None:
        """Keep a connection for the next request; called by it."""
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def now_closed(self, connection: _Connection) -> None:
        """Forget a connection; called by it."""
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


class _Connection(asyncio.Protocol):
    """One connection to Triton, with at most one request at a time."""

    def __init__(self, client: TritonClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client, self._loop = client, loop
        self._transport: Any = None
        self._parser: Any = None
        self._answer: asyncio.Future[Response] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._content_type = ""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def send(self, data: bytes) -> asyncio.Future[Response]:
        """Send a request and return its answer to come."""
        self._parser = httptools.HttpResponseParser(self)
        self._answer = self._loop.create_future()
        self._transport.write(data)
        return self._answer

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        try:
            if self._parser is not None:
                self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def connection_lost(self, fault: Exception | None) -> None:
        self._client.now_closed(self)
        answer, self._answer, self._parser = self._answer, None, None
        if answer is not None and not answer.done():
            answer.set_exception(TritonGone("Triton ended before it answered; try again."))

    def on_message_begin(self) -> None:
        """Start an answer; httptools calls this and the methods below."""
        self._headers, self._content_type, self._body = [], "", []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        lower = name.lower()
        if lower == b"content-type":
            self._content_type = value.decode("latin-1")
        elif lower not in DROPPED:
            self._headers.append((lower, value))

    def on_body(self, piece: bytes) -> None:
        """Add a piece of the body."""
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """Hand the answer over, and keep the connection where Triton does."""
        status, keeps = self._parser.get_status_code(), self._parser.should_keep_alive()
        if status == 100:
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        response = Response(status, body, self._content_type, tuple(self._headers))
        answer, self._answer, self._body = self._answer, None, []
        if answer is not None and not answer.done():
            answer.set_result(response)
        if keeps:
            self._client.now_idle(self)
        else:
            self.close()
