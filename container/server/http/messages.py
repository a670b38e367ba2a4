"""HTTP requests and responses, their limits, and a response as HTTP/1.1 bytes."""

from __future__ import annotations

import http
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from container.server.codecs.envelope import JSON_TYPE, fault_document, json_bytes
from container.server.settings import Settings
from container.server.types import RequestFault
from container.server.types import Response as Response


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpLimits:
    """Limits in bytes, seconds and connections; a request beyond them is refused, and closed."""

    body_bytes: int
    """Of one request's body, as it comes over the wire."""
    header_bytes: int = 16 * 1024
    """Of request line, header and trailer."""
    request_seconds: float = 30.0
    """From a request's first byte to its last; also how long an answer may lie unread."""
    idle_seconds: float = 75.0
    """Between an answer and the next request's first byte."""
    linger_seconds: float = 2.0
    """How long a closing connection still discards input, so that its client reads the answer."""
    max_connections: int = 2048

    @classmethod
    def of(cls, settings: Settings) -> HttpLimits:
        """Return the limits that a server's settings name."""
        return cls(
            body_bytes=settings.max_body_bytes,
            request_seconds=settings.request_seconds,
            max_connections=settings.max_connections,
        )


class Request(NamedTuple):
    """A request; header names are lower case, `path` has no query and no percent escapes.

    A large body is a memoryview of a file's pages.
    """

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    body: bytes
    query: str = ""


Application = Callable[[Request], Awaitable[Response]]
"""Answers a whole request, faults included; cancelled when the client leaves."""


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
    extra = b"".join(b"%b: %b\r\n" % header for header in headers) if headers else b""
    head = _head(status, content_type, ending)
    return b"%b%d\r\n%b\r\n%b" % (head, len(body), extra, body if with_body else b"")


# Bounded, because content types may hold a length themselves.
@lru_cache(maxsize=256)
def _head(status: int, content_type: str, ending: Ending) -> bytes:
    phrase = http.HTTPStatus(status).phrase
    start = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {content_type}\r\n".encode("latin-1")
    return start + ending.value + b"content-length: "


INTERNAL_FAULT = (
    "The server failed on this request; its log says why, and other requests are answered."
)


def json_response(document: dict[str, Any]) -> Response:
    """Return a document as a response."""
    return Response(200, json_bytes(document), JSON_TYPE)


def fault_response(fault: RequestFault) -> Response:
    """Return a fault as a response."""
    wait = fault.retry_after_seconds
    headers = () if wait is None else ((b"retry-after", b"%d" % wait),)
    return Response(fault.status, fault_document(str(fault)), JSON_TYPE, headers)


def internal_fault_response() -> Response:
    """Return a 500 for a fault of this server, which no client's input causes."""
    return Response(500, fault_document(INTERNAL_FAULT), JSON_TYPE)
