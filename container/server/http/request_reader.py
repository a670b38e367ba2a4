"""Reads whole HTTP requests from bytes, within limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

import httptools

from container.server.http.messages import Ending, HttpLimits, Request
from container.server.types import HeaderTooLarge, RequestFault, TooLarge

PIECE_BYTES = 4096
"""Read at a time outside of a body of known length: bounds how many pipelined requests come out."""
HEADER_OVERHEAD = 4
"""Colon, space and line end of a header."""


class ReceivedRequest(NamedTuple):
    """A whole request and what becomes of its connection."""

    request: Request
    ending: Ending
    takes_chunks: bool = True
    """Whether its HTTP version has chunks."""


class RequestReader:
    """The requests of one connection, in order; bytes after a fault are ignored."""

    def __init__(self, limits: HttpLimits, clock: Callable[[], float]) -> None:
        self.arrived: deque[ReceivedRequest | RequestFault] = deque()
        self.expects = False
        """Whether the client waits for a 100 before it sends the body."""
        self.begun: float | None = None
        """When the first byte of an unfinished request came."""
        self._limits, self._clock = limits, clock
        self._broken = False
        self._header_bytes = self._unfinished_bytes = 0
        self._begins_here = False
        """Whether the unfinished request began in the piece that is read now."""
        self._url, self._version = b"", ""
        self._headers: dict[bytes, bytes] = {}
        self._headers_done = False
        self._body: bytes | bytearray = b""
        self._length = 0
        self._parser: Any = httptools.HttpRequestParser(self)

    @property
    def wanted_bytes(self) -> int:
        """Bytes to feed next."""
        return max(PIECE_BYTES, self._length - len(self._body))

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the body that is being read, so far."""
        return 0 if self.begun is None else len(self._body)

    def feed(self, data: bytes) -> None:
        """Read on; faults are queued, never raised."""
        while data and not self._broken:
            self._begins_here, rest = False, b""
            try:
                self._parser.feed_data(data)
                if self.begun is not None and not self._headers_done and not self._begins_here:
                    self._count_unfinished(len(data))
            except httptools.HttpParserUpgrade as upgrade:
                rest = self._without_upgrade(data[upgrade.args[0] :])
            except (httptools.HttpParserError, RequestFault) as fault:
                self.refuse(_client_fault(fault))
            data = rest

    def refuse(self, fault: RequestFault) -> None:
        """Queue a fault behind the received requests, and read nothing more."""
        self.arrived.append(fault)
        self.close()

    def close(self) -> None:
        """Release the parser, which references this reader."""
        self._broken, self._parser, self.begun, self.expects = True, None, None, False
        self._body = b""

    def on_message_begin(self) -> None:
        """Start a request; httptools calls this and the methods below."""
        self.begun, self._begins_here = self._clock(), True
        self._url, self._headers, self._headers_done, self._header_bytes = b"", {}, False, 0
        self._unfinished_bytes = self._length = 0

    def on_url(self, url: bytes) -> None:
        """Add a piece of the request line's target."""
        self._count(len(url))
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a whole header; a trailer is counted and dropped."""
        self._header_bytes += len(name) + len(value) + HEADER_OVERHEAD
        if self._header_bytes > self._limits.header_bytes:
            self._count(0)
        if self._headers_done:
            return
        name, headers = name.lower(), self._headers
        if name not in headers:
            headers[name] = value
        elif name == b"host":
            raise RequestFault("The request has several Host headers; send one.")
        else:
            headers[name] += b", " + value

    def on_headers_complete(self) -> None:
        """Refuse a request by its header before its body is read."""
        self._headers_done = True
        headers = self._headers
        version = self._version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise RequestFault(f"HTTP/{version} is not spoken here; use HTTP/1.1.")
        if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            raise RequestFault(
                "Transfer-Encoding must be chunked alone; a packed body is said by "
                "Content-Encoding."
            )
        self._length = int(headers.get(b"content-length", b"0"))
        if self._length > self._limits.body_bytes:
            raise self._too_large()
        self.expects = version == "1.1" and headers.get(b"expect", b"").lower() == b"100-continue"

    def on_body(self, piece: bytes) -> None:
        """Add a piece of the body."""
        if len(self._body) + len(piece) > self._limits.body_bytes:
            raise self._too_large()
        if not self._body:
            self._body = piece
        elif isinstance(self._body, bytearray):
            self._body += piece
        else:
            self._body = bytearray(self._body + piece)

    def on_message_complete(self) -> None:
        """Queue the whole request."""
        body = self._body if isinstance(self._body, bytes) else bytes(self._body)
        method = self._parser.get_method().decode("ascii")
        request = Request(method, _path(self._url), self._headers, body)
        takes_chunks = self._version == "1.1"
        self.arrived.append(ReceivedRequest(request, self._ending(), takes_chunks))
        self.begun, self.expects, self._body = None, False, b""

    def _ending(self) -> Ending:
        if not self._parser.should_keep_alive():
            return Ending.CLOSE
        if self._version == "1.1":
            return Ending.KEEP
        # Who put chunks into HTTP/1.0 may not know where they end (RFC 9112, 6.1).
        return Ending.CLOSE if b"transfer-encoding" in self._headers else Ending.KEEP_OLD

    def _without_upgrade(self, rest: bytes) -> bytes:
        """Return the request without its Upgrade header, and the bytes that follow it.

        httptools stops at an upgrade. A server may ignore one (RFC 9110, 7.8): Java's HttpClient
        requests h2c with every request, and its body follows.
        """
        arrival, method = self.arrived.pop(), self._parser.get_method()
        if method == b"CONNECT":
            assert isinstance(arrival, ReceivedRequest)
            self.arrived.append(arrival._replace(ending=Ending.CLOSE))
            self.close()
            return b""
        self._parser = httptools.HttpRequestParser(self)
        kept = [header for header in self._headers.items() if header[0] != b"upgrade"]
        lines = b"".join([b"%b: %b\r\n" % header for header in kept])
        request_line = b"%b %b HTTP/%b" % (method, self._url, self._version.encode())
        return b"%b\r\n%b\r\n%b" % (request_line, lines, rest)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self._limits.header_bytes:
            raise HeaderTooLarge(
                f"Request line and header have more than {self._limits.header_bytes} bytes."
            )

    def _count_unfinished(self, size: int) -> None:
        """Count bytes that the parser buffers until the header ends."""
        self._unfinished_bytes += size
        if self._unfinished_bytes > self._limits.header_bytes:
            self._count(self._unfinished_bytes)

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The request has more than {self._limits.body_bytes} bytes.")


def _path(url: bytes) -> str:
    """Return the path of a request target, which may be a whole URL."""
    if not url.startswith(b"/") and b"://" in url:
        url = b"/" + url.partition(b"://")[2].partition(b"/")[2]
    path = url.decode("latin-1").partition("?")[0]
    return unquote(path) if "%" in path else path


def _client_fault(fault: Exception) -> RequestFault:
    """Return the client's fault for a parser fault, or for a RequestFault raised within it."""
    for cause in (fault, fault.__context__):
        if isinstance(cause, RequestFault):
            return cause
    return RequestFault(f"The request is not HTTP/1.1: {fault}.")
