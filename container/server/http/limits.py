"""What one connection and one server put up with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpLimits:
    """Bytes, seconds and connections; whatever is beyond them is refused in one sentence and
    closed.
    """

    body_bytes: int
    """Of one request's body, as it comes over the wire."""
    header_bytes: int = 16 * 1024
    """Of request line, header and trailer."""
    request_seconds: float = 30.0
    """From a request's first byte to its last; also how long an answer may lie unread."""
    idle_seconds: float = 75.0
    """Between an answer and the next request's first byte."""
    linger_seconds: float = 2.0
    """How long a closing connection still swallows what its client sends, so that the client reads
    the last answer.
    """
    max_connections: int = 2048
