"""HTTP to one local server, over connections that stay open between requests."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Connect = Callable[[float], socket.socket]
CHUNK_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class Response:
    """What a server answered; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class OpenResponse:
    """A server's answer whose body is still to be read; header names are in lower case."""

    def __init__(self, reply: http.client.HTTPResponse, connected: socket.socket) -> None:
        self.status = reply.status
        self.headers = {name.lower(): value for name, value in reply.getheaders()}
        self._reply, self._socket = reply, connected

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it arrives. Raises OSError or HTTPException where it breaks off."""
        while chunk := self._reply.read1(CHUNK_BYTES):
            yield chunk
        if self._reply.length:
            raise http.client.IncompleteRead(b"", self._reply.length)

    def close(self) -> None:
        """Leave, also from another thread: a server that writes on finds its client gone."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class _Connection(http.client.HTTPConnection):
    """An HTTP connection whose socket comes from elsewhere."""

    def __init__(self, connect: Connect, timeout_seconds: float) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._connect = connect
        self.used = False

    def connect(self) -> None:
        self.sock = self._connect(float(self.timeout or 60))
        if self.sock.family != socket.AF_UNIX:
            # http.client sends head and body apart: without this the body waits 40 ms for an ACK.
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class ServerClient:
    """Sends requests to one server from any number of threads."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._idle: list[_Connection] = []
        self._turn = threading.Lock()

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 60,
    ) -> Response:
        """Send one request; a connection that the server closed while idle is replaced once."""
        connection = self._take_connection(timeout_seconds)
        try:
            return self._exchange(connection, method, path, body, dict(headers or {}))
        except (http.client.RemoteDisconnected, ConnectionError):
            connection.close()
            if not connection.used:
                raise
            connection = _Connection(self._connect, timeout_seconds)
            return self._exchange(connection, method, path, body, dict(headers or {}))
        except BaseException:
            connection.close()
            raise

    def is_healthy(self, timeout_seconds: float) -> bool:
        """Return whether /ping answers 200 within a time."""
        try:
            return self.request("GET", "/ping", timeout_seconds=timeout_seconds).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def open(
        self, path: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float
    ) -> OpenResponse:
        """Send one POST over a connection of its own; neither head nor parts may take longer."""
        connection = _Connection(self._connect, timeout_seconds)
        try:
            connection.request("POST", path, body=body, headers=dict(headers))
            connected: socket.socket = connection.sock
            return OpenResponse(connection.getresponse(), connected)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Closes the connections that no request uses."""
        with self._turn:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_connection(self, timeout_seconds: float) -> _Connection:
        with self._turn, contextlib.suppress(IndexError):
            connection = self._idle.pop()
            connection.timeout = timeout_seconds
            connection.sock.settimeout(timeout_seconds)
            return connection
        return _Connection(self._connect, timeout_seconds)

    def _exchange(
        self, connection: _Connection, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> Response:
        connection.request(method, path, body=body, headers=headers)
        reply = connection.getresponse()
        content = reply.read()
        if connection.sock is not None:
            connection.used = True
            with self._turn:
                self._idle.append(connection)
        lowered = {name.lower(): value for name, value in reply.getheaders()}
        return Response(status=reply.status, headers=lowered, body=content)
