"""The HTTP server of one process: its connections, their timeouts, and draining."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from container.server.http.messages import (
    CONTINUE,
    Application,
    Ending,
    ErrorBody,
    HttpLimits,
    Response,
    StreamedResponse,
    error_body,
    fault_response,
    internal_fault_response,
    response_bytes,
    stream_head,
)
from container.server.http.request_reader import ReceivedRequest, RequestReader
from container.server.process import happens_within
from container.server.types import QueueFull, RequestFault, TooSlow, Unavailable


@dataclass(kw_only=True, slots=True)
class ConnectionGroup:
    """The state that all connections of a server share."""

    application: Application
    limits: HttpLimits
    clock: Callable[[], float]
    error_body: ErrorBody = error_body
    memory_full: Callable[[], object] = lambda: None
    """Called for a request that the limit of all bodies refuses."""
    closed: Callable[[], None] = lambda: None
    """Called after a connection is gone."""
    connections: set[Connection] = field(default_factory=set)
    answering: int = 0
    """Requests that are being answered."""
    held_bytes: int = 0
    """Of all bodies that are read or answered, where the limits bound them."""
    draining: bool = False


class Connection(asyncio.Protocol):
    """One client's connection: requests are answered in order, one at a time.

    It reads at most one request ahead of the one it answers: memory is bounded by two bodies and
    one read.
    """

    __slots__ = (
        "_backlog",
        "_body",
        "_ending",
        "_group",
        "_held_bytes",
        "_is_unread",
        "_loop",
        "_reader",
        "_reading",
        "_resumed",
        "_task",
        "_transport",
        "_wait_began",
    )

    def __init__(self, group: ConnectionGroup, loop: asyncio.AbstractEventLoop) -> None:
        self._group, self._loop = group, loop
        self._transport: Any = None
        self._reader = RequestReader(group.limits, group.clock)
        self._task: asyncio.Task[None] | None = None
        self._backlog: bytes = b""
        self._body: bytes = b""
        """Of the request that is being answered, where the limits bound all bodies."""
        self._held_bytes = 0
        self._resumed: asyncio.Future[None] | None = None
        """Done when the client reads again; of an answer in pieces that waits for it."""
        self._reading = True
        self._ending = False
        """Whether the last answer is written; what still comes is thrown away."""
        self._is_unread = False
        """Whether the client does not read its answers."""
        self._wait_began = group.clock()
        """When the present wait began: for a request, or for the client to read or leave."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the others, or refuse the client when they are too many."""
        self._transport = transport
        connections, most = self._group.connections, self._group.limits.max_connections
        connections.add(self)
        if len(connections) > most:
            refusal = Unavailable(f"The server has {most} connections, as many as it takes.")
            self._send_last(fault_response(refusal, self._group.error_body))
        if len(connections) > 2 * most:
            transport.abort()  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Read on and begin to answer."""
        if self._ending:
            return
        self._backlog = self._backlog + data if self._backlog else data
        self._advance()

    def eof_received(self) -> bool:
        """Stop the work and close: the client has left."""
        self._stop_work()
        return False

    def connection_lost(self, fault: Exception | None) -> None:
        """Leave the group with nothing behind."""
        self._stop_work()
        self._reader.arrived.clear()
        self._group.connections.discard(self)
        self._group.closed()

    def pause_writing(self) -> None:
        """Start no further request: the client does not read."""
        self._is_unread, self._wait_began = True, self._group.clock()

    def resume_writing(self) -> None:
        """Go on: the client reads again."""
        self._is_unread, self._wait_began = False, self._group.clock()
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        self._advance()

    def drain(self) -> None:
        """Close at once when idle; otherwise after the current response."""
        reader = self._reader
        if not (self._task or reader.arrived or self._backlog) and reader.begun is None:
            self._close()

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._stop_work()
        self._transport.abort()

    def check_timeouts(self, now: float) -> None:
        """Refuse or close what lasts too long; called periodically."""
        limits, reader, waited = self._group.limits, self._reader, now - self._wait_began
        if self._ending or self._is_unread:
            if waited > (limits.unread_seconds if self._is_unread else limits.linger_seconds):
                self.abort()
        elif self._task is not None:
            return
        elif reader.begun is None:
            if waited > limits.idle_seconds:
                self._close()
        elif now - reader.begun > limits.request_seconds:
            within = f"{limits.request_seconds:g} seconds"
            reader.refuse(TooSlow(f"The request did not arrive whole within {within}."))
            self._advance()

    def _advance(self) -> None:
        """Answer in order, and read while no request waits behind the current one."""
        arrived = self._reader.arrived
        while not self._ending:
            if arrived and self._task is None and not self._is_unread:
                self._begin(arrived.popleft())
            elif self._backlog and not arrived:
                data, size = self._backlog, self._reader.wanted_bytes
                whole = len(data) <= size
                self._backlog = b"" if whole else data[size:]
                self._reader.feed(data if whole else data[:size])
                if self._group.limits.held_bytes is not None:
                    self._count_held(self._group.limits.held_bytes)
            else:
                break
        if self._reader.expects and self._task is None and not arrived and not self._ending:
            self._reader.expects = False
            self._transport.write(CONTINUE)
        reading = self._ending or not arrived
        if reading is not self._reading:
            self._reading = reading
            (self._transport.resume_reading if reading else self._transport.pause_reading)()

    def _count_held(self, most: int) -> None:
        """Count this connection's bodies, and refuse the one that is read where all are too many.

        What is not read whole yet counts too.
        """
        arrivals = (item for item in self._reader.arrived if isinstance(item, ReceivedRequest))
        whole = sum(len(arrival.request.body) for arrival in arrivals)
        held = len(self._body) + whole + self._reader.unfinished_bytes
        grows = held > self._held_bytes
        self._group.held_bytes += held - self._held_bytes
        self._held_bytes = held
        if grows and self._group.held_bytes > most:
            self._group.memory_full()
            self._reader.arrived.clear()
            full = "The requests that are being read fill this container's memory."
            self._reader.refuse(QueueFull(full))

    def _begin(self, arrival: ReceivedRequest | RequestFault) -> None:
        if isinstance(arrival, RequestFault):
            self._send_last(fault_response(arrival, self._group.error_body))
            return
        if self._group.limits.held_bytes is not None:
            self._body = arrival.request.body
        self._group.answering += 1
        self._task = self._loop.create_task(self._answer(arrival))

    async def _answer(self, arrival: ReceivedRequest) -> None:
        request = arrival.request
        if self._group.answering == 1:
            request = request._replace(is_alone=True)
        try:
            response = await self._group.application(request)
            if type(response) is StreamedResponse:
                await self._stream(response, arrival)
                return
        except asyncio.CancelledError:
            if self._ending:
                raise
            stopped = Unavailable("The server stopped working on this request; try again.")
            self._send(fault_response(stopped, self._group.error_body), arrival)
        except Exception:
            self._send(internal_fault_response(self._group.error_body), arrival)
            raise
        else:
            self._send(response, arrival)

    async def _stream(self, response: StreamedResponse, arrival: ReceivedRequest) -> None:
        """Send an answer as its pieces come; HTTP/1.0 has no chunks, so its connection's end is.

        Where the pieces fail the connection ends, so that no client takes half an answer for whole.
        """
        chunked, transport = arrival.takes_chunks, self._transport
        ending = arrival.ending if chunked and not self._group.draining else Ending.CLOSE

        async def send(piece: bytes) -> None:
            transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            while self._is_unread:
                self._resumed = self._loop.create_future()
                await self._resumed

        transport.write(stream_head(response, ending, chunked=chunked))
        try:
            await response.send_pieces(send)
        except BaseException:
            self._forget_task()
            self.abort()
            raise
        if chunked:
            transport.write(b"0\r\n\r\n")
        self._forget_task()
        self._wait_began = self._group.clock()
        self._go_on(Ending.CLOSE if self._group.draining else ending)

    def _send(self, response: Response, arrival: ReceivedRequest) -> None:
        """Write an answer and go on to the next request."""
        self._forget_task()
        if self._ending:
            return
        ending = Ending.CLOSE if self._group.draining else arrival.ending
        self._wait_began = self._group.clock()
        with_body = arrival.request.method != "HEAD"
        self._transport.write(response_bytes(response, ending, with_body=with_body))
        self._go_on(ending)

    def _go_on(self, ending: Ending) -> None:
        """Close after an answer, or turn to the next request."""
        if self._body:
            self._group.held_bytes -= len(self._body)
            self._held_bytes -= len(self._body)
            self._body = b""
        if ending is Ending.CLOSE:
            self._close()
        else:
            self._advance()

    def _send_last(self, response: Response) -> None:
        """Write a response after which the client may read but send no more."""
        self._transport.write(response_bytes(response, Ending.CLOSE))
        self._end()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _close(self) -> None:
        self._end()
        self._transport.close()

    def _end(self) -> None:
        self._ending, self._wait_began, self._backlog = True, self._group.clock(), b""
        self._body = b""
        self._group.held_bytes -= self._held_bytes
        self._held_bytes = 0
        self._reader.close()

    def _stop_work(self) -> None:
        self._end()
        if self._task is not None:
            self._task.cancel()
        self._forget_task()

    def _forget_task(self) -> None:
        if self._task is not None:
            self._task = None
            self._group.answering -= 1


CHECKS_PER_LIMIT = 4
LONGEST_CHECK_SECONDS = 1.0


class HttpServer:
    """Passes whole requests to `application`."""

    def __init__(
        self,
        application: Application,
        *,
        limits: HttpLimits,
        error_body: ErrorBody = error_body,
        memory_full: Callable[[], object] = lambda: None,
    ) -> None:
        """`error_body` writes the errors of requests that reach no application."""
        self._loop = asyncio.get_running_loop()
        self._empty = asyncio.Event()
        self._group = ConnectionGroup(
            application=application,
            limits=limits,
            clock=self._loop.time,
            error_body=error_body,
            memory_full=memory_full,
            closed=self._connection_closed,
        )
        self._listening: asyncio.Server | None = None
        shortest = min(
            *(limits.request_seconds, limits.unread_seconds),
            *(limits.idle_seconds, limits.linger_seconds),
        )
        self._check_seconds = min(LONGEST_CHECK_SECONDS, shortest / CHECKS_PER_LIMIT)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """The number of connected clients."""
        return len(self._group.connections)

    async def start(self, listener: socket.socket) -> None:
        """Accept from a socket that listens already."""
        self._listening = await self._loop.create_server(
            lambda: Connection(self._group, self._loop), sock=listener
        )
        self._check_connections()

    async def drain(self, seconds: float) -> None:
        """Accept nothing more and close idle connections; after `seconds` close the others too."""
        self._group.draining = True
        if self._listening is not None:
            self._listening.close()
        for connection in tuple(self._group.connections):
            connection.drain()
        self._connection_closed()
        if not await happens_within(self._empty, seconds):
            for connection in tuple(self._group.connections):
                connection.abort()
            await happens_within(self._empty, 1.0)
        if self._timer is not None:
            self._timer.cancel()

    def _connection_closed(self) -> None:
        if self._group.draining and not self._group.connections:
            self._empty.set()

    def _check_connections(self) -> None:
        """Check the timeouts of all connections by one timer."""
        now = self._loop.time()
        for connection in tuple(self._group.connections):
            connection.check_timeouts(now)
        self._timer = self._loop.call_later(self._check_seconds, self._check_connections)
