"""A response as HTTP/1.1 bytes."""

from __future__ import annotations

import http
from enum import Enum
from functools import lru_cache

from container.server.http.message import Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Ending(Enum):
    """What becomes of the connection after an answer, and how its header says so."""

    KEEP = b""
    KEEP_OLD = b"connection: keep-alive\r\n"
    """HTTP/1.0 clients that asked for it must be told."""
    CLOSE = b"connection: close\r\n"


def response_bytes(response: Response, ending: Ending, *, with_body: bool = True) -> bytes:
    """Status line, header and body; a HEAD request is answered without the body."""
    head = _head(response.status, response.content_type, ending)
    extra = (
        b"".join(b"%b: %b\r\n" % header for header in response.headers) if response.headers else b""
    )
    return b"%b%d\r\n%b\r\n%b" % (
        head,
        len(response.body),
        extra,
        response.body if with_body else b"",
    )


@lru_cache(maxsize=256)
def _head(status: int, content_type: str, ending: Ending) -> bytes:
    """Everything before the length; content types that hold a length themselves make this a bounded
    cache.
    """
    phrase = http.HTTPStatus(status).phrase
    start = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {content_type}\r\n".encode("latin-1")
    return start + ending.value + b"content-length: "
