"""HTTP requests and responses, their limits, and a response as HTTP/1.1 bytes."""

from __future__ import annotations

import http
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, final

from container.server.settings import Settings
from container.server.types import JSON_TYPE, RequestFault
from container.server.types import Response as Response


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpLimits:
    """Limits in bytes, seconds and connections; a request beyond them is refused, and closed."""

    body_bytes: int
    """Of one request's body, as it comes over the wire."""
    header_bytes: int = 16 * 1024
    """Of request line, header and trailer."""
    request_seconds: float = 30.0
    """From a request's first byte to its last."""
    unread_seconds: float = 30.0
    """How long an answer may lie unread."""
    idle_seconds: float = 75.0
    """Between an answer and the next request's first byte."""
    linger_seconds: float = 2.0
    """How long a closing connection still discards input, so that its client reads the answer."""
    max_connections: int = 2048
    held_bytes: int | None = None
    """Of all bodies that are read or answered at once; None: as many as there are connections."""

    @classmethod
    def of(cls, settings: Settings) -> HttpLimits:
        """Return the limits that a server's settings name."""
        return cls(
            body_bytes=settings.max_body_bytes,
            request_seconds=settings.request_seconds,
            unread_seconds=settings.request_seconds,
            max_connections=settings.max_connections,
        )


class Request(NamedTuple):
    """A request; header names are lower case, `path` has no query and no percent escapes."""

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    body: bytes
    is_alone: bool = False
    """Whether the server answers no other request now."""


Send = Callable[[bytes], Awaitable[None]]
"""Sends a piece of an answer, and waits while its client does not read."""


@final
class StreamedResponse(NamedTuple):
    """An answer of status 200 that is sent as it comes; `send_pieces` ends with its last piece.

    Where `send_pieces` raises, the connection is closed without the answer's end.
    """

    content_type: str
    headers: tuple[tuple[bytes, bytes], ...]
    send_pieces: Callable[[Send], Awaitable[None]]
    status: int = 200


Reply = Response | StreamedResponse
Application = Callable[[Request], Awaitable[Reply]]
"""Answers a whole request, faults included; cancelled when the client leaves."""
ErrorBody = Callable[[int, str], bytes]
"""Returns the JSON of an error of a status and a sentence, in the protocol of the server."""


LENGTH, CHUNKS = b"content-length: ", b"transfer-encoding: chunked\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Ending(Enum):
    """Whether the connection stays open after a response, and its header for it."""

    KEEP = b""
    KEEP_OLD = b"connection: keep-alive\r\n"
    """HTTP/1.0 clients that requested keep-alive need the header."""
    CLOSE = b"connection: close\r\n"


def response_bytes(response: Response, ending: Ending, *, with_body: bool = True) -> bytes:
    """Return status line, header and body; a HEAD request is answered without the body."""
    status, body, content_type, headers = response
    extra = _header_lines(headers) if headers else b""
    head = _head(status, content_type, ending, LENGTH)
    return b"%b%d\r\n%b\r\n%b" % (head, len(body), extra, body if with_body else b"")


def stream_head(response: StreamedResponse, ending: Ending, *, chunked: bool) -> bytes:
    """Return status line and header of an answer whose length is not known."""
    framing = CHUNKS if chunked else b""
    head = _head(response.status, response.content_type, ending, framing)
    return b"%b%b\r\n" % (head, _header_lines(response.headers))


# Bounded, because content types may hold a length themselves.
@lru_cache(maxsize=256)
def _head(status: int, content_type: str, ending: Ending, framing: bytes) -> bytes:
    phrase = http.HTTPStatus(status).phrase
    start = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {content_type}\r\n".encode("latin-1")
    return start + ending.value + framing


def _header_lines(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


INTERNAL_FAULT = (
    "The server failed on this request; its log says why, and other requests are answered."
)


def error_body(status: int, sentence: str) -> bytes:
    """Return KServe's JSON of an error; its status is the answer's."""
    return json.dumps({"error": sentence}, ensure_ascii=False, separators=(",", ":")).encode()


def fault_response(fault: RequestFault, body: ErrorBody = error_body) -> Response:
    """Return a fault as a response."""
    wait = fault.retry_after_seconds
    headers = () if wait is None else ((b"retry-after", b"%d" % wait),)
    return Response(fault.status, body(fault.status, str(fault)), JSON_TYPE, headers)


def internal_fault_response(body: ErrorBody = error_body) -> Response:
    """Return a 500 for a fault of this server, which no client's input causes."""
    return Response(500, body(500, INTERNAL_FAULT), JSON_TYPE)
