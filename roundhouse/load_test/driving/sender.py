"""Sends requests over kept-alive connections and tells the tally what became of each."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from roundhouse.load_test.driving.connection import Connection
from roundhouse.load_test.driving.tally import Tally
from roundhouse.load_test.requests.destination import Destination, Requests
from roundhouse.load_test.wording import status_words

CONNECT_SECONDS = 10.0


@dataclass(slots=True)
class Exchange:
    """One request: when it was to be sent, when it was, and whom to tell that it is over."""

    intended: float
    data: bytes
    then: Callable[[bool], None] | None = None
    """Called at the end, with whether it was answered."""
    sent: float | None = None
    connection: Connection | None = None
    over: bool = False
    retried: bool = False


@dataclass(kw_only=True)
class Sender:
    """Opens a connection when none is idle, up to `most_connections`; what finds none waits its
    turn, its clock running.
    """

    destination: Destination
    requests: Requests
    tally: Tally
    most_connections: int
    timeout_seconds: float
    tls: ssl.SSLContext | None = None
    idle: list[Connection] = field(default_factory=list)
    waiting: deque[Exchange] = field(default_factory=deque)
    under_way: deque[Exchange] = field(default_factory=deque)
    """In the order of sending; those that are over are dropped when they come to the front."""
    in_flight: int = 0
    connections: int = 0
    opening: set[asyncio.Task[None]] = field(default_factory=set)
    halted: bool = False

    def submit(self, intended: float, then: Callable[[bool], None] | None = None) -> None:
        """Sends the next request as soon as there is a connection."""
        self._dispatch(Exchange(intended=intended, data=self.requests.next(), then=then))

    @property
    def pending(self) -> int:
        """Requests that wait or are under way."""
        return self.in_flight + len(self.waiting)

    def expire(self, now: float) -> None:
        """Gives up what has waited for an answer longer than the timeout."""
        while self.under_way and (
            self.under_way[0].over or now - (self.under_way[0].sent or now) > self.timeout_seconds
        ):
            exchange = self.under_way.popleft()
            if not exchange.over:
                self._give_up(exchange, f"no answer within {self.timeout_seconds:g} s", now)

    def give_up_all(self, reason: str | None) -> int:
        """Ends what waits or is under way, as a fault with this reason or, for None, as if it had
        never been; their number.
        """
        now, self.halted = time.monotonic(), reason is None
        left = [each for each in (*self.under_way, *self.waiting) if not each.over]
        self.waiting.clear()
        self.under_way.clear()
        for exchange in left:
            self._give_up(exchange, reason, now)
        return len(left)

    def close(self) -> None:
        """Closes every connection."""
        self.halted = True
        for task in self.opening:
            task.cancel()
        for connection in self.idle:
            connection.close()
        self.idle.clear()

    def answered(self, connection: Connection, status: int, body: bytes) -> None:
        """A connection's answer."""
        exchange, connection.exchange = connection.exchange, None
        if exchange is not None and not exchange.over:
            exchange.over = True
            self.in_flight -= 1
            if status == 200:
                self.tally.answer(exchange.intended, exchange.sent, time.monotonic())
            else:
                self.tally.fault(status_words(status, body))
        if not connection.usable:
            pass
        elif self.waiting and not self.halted:
            self._send(self.waiting.popleft(), connection)
        else:
            self.idle.append(connection)
        if exchange is not None and exchange.then is not None and not self.halted:
            exchange.then(status == 200)

    def lost(self, connection: Connection, reason: str, begun: bool) -> None:
        """A connection's end; a request that met an idle connection's end is sent again, once, as
        its clock runs on.
        """
        self.connections -= 1
        with contextlib.suppress(ValueError):
            self.idle.remove(connection)
        exchange, connection.exchange = connection.exchange, None
        if exchange is None or exchange.over:
            self._next_waiting()
            return
        self.in_flight -= 1
        if connection.requests > 1 and not begun and not exchange.retried and not self.halted:
            exchange.over, again = (
                True,
                Exchange(exchange.intended, exchange.data, exchange.then, retried=True),
            )
            self.tally.reconnected += 1
            self._dispatch(again)
            return
        self._failed(exchange, f"connection lost: {reason}")

    def _dispatch(self, exchange: Exchange) -> None:
        while self.idle:
            connection = self.idle.pop()
            if connection.usable:
                self._send(exchange, connection)
                return
        self.waiting.append(exchange)
        if self.connections < self.most_connections and len(self.opening) < len(self.waiting):
            self._open()

    def _send(self, exchange: Exchange, connection: Connection) -> None:
        exchange.sent = time.monotonic()
        exchange.connection, connection.exchange = connection, exchange
        self.in_flight += 1
        self.tally.sent += 1
        self.under_way.append(exchange)
        connection.send(exchange.data)

    def _open(self) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._connect())
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)

    async def _connect(self) -> None:
        host, port = self.destination.address
        made: list[Connection] = []

        def new() -> Connection:
            made.append(Connection(self))
            return made[-1]

        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                loop = asyncio.get_running_loop()
                await loop.create_connection(
                    new, host, port, ssl=self.tls, server_hostname=host if self.tls else None
                )
        except (OSError, TimeoutError) as fault:
            if not (made and made[-1].opened):
                self.connections -= 1
            self._not_connected(
                f"no connection: {fault.strerror if isinstance(fault, OSError) and fault.strerror else fault!r}"
            )
            return
        if self.halted:
            made[-1].close()
        elif self.waiting:
            self._send(self.waiting.popleft(), made[-1])
        else:
            self.idle.append(made[-1])

    def _not_connected(self, reason: str) -> None:
        if self.waiting and not self.halted:
            self._failed(self.waiting.popleft(), reason)

    def _failed(self, exchange: Exchange, reason: str) -> None:
        exchange.over = True
        if self.halted:
            return
        self.tally.fault(reason)
        if exchange.then is not None:
            exchange.then(False)
        self._next_waiting()

    def _next_waiting(self) -> None:
        if self.waiting and not self.halted and self.connections < self.most_connections:
            self._open()

    def _give_up(self, exchange: Exchange, reason: str | None, now: float) -> None:
        exchange.over = True
        if exchange.connection is not None:
            self.in_flight -= 1
            exchange.connection.close()
        if reason is None:
            return
        self.tally.unanswered(reason, exchange.intended, exchange.sent, now)
        if exchange.then is not None and not self.halted:
            exchange.then(False)
