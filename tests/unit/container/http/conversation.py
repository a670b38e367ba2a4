"""A connection without a socket.

What its client sends, what it reads, and a clock that is set by hand.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps

from container.server.http.messages import HttpLimits, Response
from container.server.http.server import Connection, ConnectionGroup

LIMITS = HttpLimits(
    body_bytes=1000,
    header_bytes=2000,
    request_seconds=30,
    idle_seconds=75,
    linger_seconds=2,
    max_connections=3,
)

POST = b"POST /a HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"
GET = b"GET /%d HTTP/1.1\r\n\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Wire:
    """A transport that keeps what is written."""

    written: bytearray = field(default_factory=bytearray)
    reading: bool = True
    ended: bool = False
    closed: bool = False
    aborted: bool = False

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


@dataclass
class Clock:
    """Stands still until told."""

    now: float = 100.0

    def __call__(self):
        return self.now


@dataclass
class Office:
    """Answers with what was asked, as soon as it may.

    Remembers what was asked and what was cancelled.
    """

    open: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list = field(default_factory=list)
    cancelled: int = 0
    fault: Exception | None = None

    async def __call__(self, request):
        self.asked.append(request)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fault is not None:
            raise self.fault
        return Response(
            200, request.method.encode() + request.path.encode() + b":" + request.body, "text/plain"
        )


class Conversation:
    """One client before one connection; the office is open unless told."""

    def __init__(self, *, shared: ConnectionGroup | None = None, shut: bool = False) -> None:
        self.clock, self.office, self.wire = Clock(), Office(), Wire()
        if not shut:
            self.office.open.set()
        self.shared = (
            ConnectionGroup(application=self.office, limits=LIMITS, clock=self.clock)
            if shared is None
            else shared
        )
        self.connection = Connection(self.shared, asyncio.get_running_loop())
        self.connection.connection_made(self.wire)

    async def send(self, *pieces: bytes) -> None:
        """Sends pieces, as long as the server reads, and lets it work."""
        for piece in pieces:
            self.connection.data_received(piece)
            await settle()

    async def wait(self, seconds: float) -> None:
        """Lets time pass, and the server look at the clock."""
        self.clock.now += seconds
        self.connection.check_timeouts(self.clock.now)
        await settle()

    def leave(self) -> None:
        """The client closes its side; the transport does what asyncio's does."""
        if not self.connection.eof_received():
            self.wire.close()
        self.connection.connection_lost(None)

    @property
    def answers(self) -> list[tuple[int, dict[str, str], bytes]]:
        """Status, headers and body of each answer."""
        found, rest = [], bytes(self.wire.written)
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            line, *lines = head.decode("latin-1").split("\r\n")
            headers = dict(each.split(": ", 1) for each in lines)
            length = 0 if line.endswith("100 Continue") else int(headers["content-length"])
            found.append((int(line.split()[1]), headers, rest[:length]))
            rest = rest[length:]
        return found

    @property
    def sentence(self) -> str:
        """What the last answer says is wrong."""
        document = json.loads(self.answers[-1][2])
        assert list(document) == ["error"]
        return document["error"]


async def settle() -> None:
    """Lets everything that can run, run."""
    for _ in range(5):
        await asyncio.sleep(0)


def run(scenario: Callable[..., Awaitable[None]]):
    """Runs a coroutine as a test; it must leave no task behind."""

    @wraps(scenario)
    def test(*arguments, **keywords):
        async def watched():
            await scenario(*arguments, **keywords)
            await settle()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(watched())

    return test


def statuses(conversation: Conversation) -> list[int]:
    """The statuses of the answers so far."""
    return [status for status, _, _ in conversation.answers]
