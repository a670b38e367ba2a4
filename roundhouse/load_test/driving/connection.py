"""One keep-alive connection: a request goes out, a status and the body's beginning come back."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import httptools

KEPT_BYTES = 4096
"""Of an answer that is a refusal, for its sentence."""


class Owner(Protocol):
    """Whom a connection tells what became of it."""

    def answered(self, connection: Connection, status: int, body: bytes) -> None:
        """A whole answer has come; a refusal's body is cut short, another's is not kept."""
        ...

    def lost(self, connection: Connection, reason: str, begun: bool) -> None:
        """The connection is gone; `begun` says whether a part of an answer had come."""
        ...


class Connection(asyncio.Protocol):
    """Speaks HTTP/1.1 with one request under way at most; `exchange` is its owner's note of that
    request.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: Any = None
        self._parser: Any = None
        self._begun = False
        self._kept = b""
        self.exchange: Any = None
        self.requests = 0
        self.usable = True
        """False once the server has said that it closes."""

    @property
    def opened(self) -> bool:
        """Whether it was ever open."""
        return self._transport is not None

    def send(self, data: bytes) -> None:
        """Sends one whole request."""
        self._begun, self._kept = False, b""
        self.requests += 1
        self._transport.write(data)

    def close(self) -> None:
        """Drops the connection and whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's."""
        self._transport = transport
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        """asyncio's."""
        self._begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as fault:
            self._finish(f"an answer that is no HTTP ({fault})")

    def eof_received(self) -> bool:
        """asyncio's: a server that says no more is left."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's."""
        self._finish(
            "closed by the server"
            if exc is None
            else (exc.__class__.__name__ if not str(exc) else str(exc))
        )

    def on_body(self, body: bytes) -> None:
        """httptools': only refusals are kept."""
        if len(self._kept) < KEPT_BYTES and self._parser.get_status_code() != 200:
            self._kept += body[: KEPT_BYTES - len(self._kept)]

    def on_message_complete(self) -> None:
        """httptools'."""
        status, stays = self._parser.get_status_code(), self._parser.should_keep_alive()
        if 100 <= status < 200:
            return
        self.usable = stays
        self._owner.answered(self, status, self._kept)
        if not stays:
            self._finish("closed by the server")

    def _finish(self, reason: str) -> None:
        owner, self._owner = self._owner, _NOBODY
        owner.lost(self, reason, self._begun)
        if self._transport is not None:
            self._transport.abort()


class _Nobody:
    def answered(self, connection: Connection, status: int, body: bytes) -> None:
        """Nobody listens any more."""

    def lost(self, connection: Connection, reason: str, begun: bool) -> None:
        """Nobody listens any more."""


_NOBODY = _Nobody()
