"""A connection without a socket: what its client sends and reads, and a clock set by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import wraps
from unittest.mock import Mock

from container.server.http.messages import HttpLimits, Response
from container.server.http.server import Connection, ConnectionGroup

LIMITS = HttpLimits(body_bytes=1000, header_bytes=2000, max_connections=3)

POST = b"POST /a HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"
GET = b"GET /%d HTTP/1.1\r\n\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"


class Transport:
    """A transport that keeps what is written."""

    def __init__(self):
        self.written = bytearray()
        self.reading, self.ended, self.closed, self.aborted = True, False, False, False

    def write(self, data):
        assert not self.closed and not self.ended
        self.written += data

    def pause_reading(self):
        assert self.reading
        self.reading = False

    def resume_reading(self):
        assert not self.reading
        self.reading = True

    def can_write_eof(self):
        return True

    def write_eof(self):
        self.ended = True

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = self.aborted = True


class EchoApplication:
    """Answers with the request once `open` is set; records requests and cancellations."""

    def __init__(self):
        self.open = asyncio.Event()
        self.requests = []
        self.cancelled = 0
        self.fault: Exception | None = None
        self.large: bytes | None = None
        """The body of the next answer alone."""

    async def __call__(self, request):
        self.requests.append(request)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fault is not None:
            raise self.fault
        if self.large is not None:
            body, self.large = self.large, None
            return Response(200, body, "text/plain")
        body = f"{request.method}{request.path}:".encode() + request.body
        return Response(200, body, "text/plain")


class Conversation:
    """One client of one connection; the application is open unless `shut`."""

    def __init__(self, *, shared: ConnectionGroup | None = None, shut: bool = False) -> None:
        self.clock = Mock(return_value=100.0)
        self.application, self.transport = EchoApplication(), Transport()
        if not shut:
            self.application.open.set()
        self.shared = shared or ConnectionGroup(
            application=self.application, limits=LIMITS, clock=self.clock
        )
        self.connection = Connection(self.shared, asyncio.get_running_loop())
        self.connection.connection_made(self.transport)

    async def send(self, *pieces: bytes) -> None:
        """Send pieces, as long as the server reads, and let it work."""
        for piece in pieces:
            self.connection.data_received(piece)
            await settle()

    async def answer(self) -> None:
        """Let the application answer."""
        self.application.open.set()
        await settle()

    async def wait(self, seconds: float) -> None:
        """Let time pass, and the server check its timeouts."""
        self.clock.return_value += seconds
        self.connection.check_timeouts(self.clock())
        await settle()

    def leave(self) -> None:
        """The client closes its side; the transport does what asyncio's does."""
        if not self.connection.eof_received():
            self.transport.close()
        self.connection.connection_lost(None)

    @property
    def answers(self) -> list[tuple[int, dict[str, str], bytes]]:
        """Status, headers and body of every answer."""
        answers, rest = [], bytes(self.transport.written)
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            line, *lines = head.decode("latin-1").split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            length = 0 if line.endswith("100 Continue") else int(headers["content-length"])
            answers.append((int(line.split()[1]), headers, rest[:length]))
            rest = rest[length:]
        return answers

    @property
    def statuses(self) -> list[int]:
        """The statuses of the answers so far."""
        return [status for status, _, _ in self.answers]

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of the answers so far."""
        return [body for _, _, body in self.answers]

    @property
    def sentence(self) -> str:
        """The sentence of the last answer, a fault."""
        document = json.loads(self.answers[-1][2])
        assert list(document) == ["error"]
        return document["error"]


async def settle() -> None:
    """Let everything that can run, run."""
    for _ in range(5):
        await asyncio.sleep(0)


def run(scenario: Callable[..., Awaitable[None]]):
    """Run a coroutine as a test; it must leave no task behind."""

    @wraps(scenario)
    def test(*arguments, **keywords):
        async def run_scenario():
            await scenario(*arguments, **keywords)
            await settle()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(run_scenario())

    return test
