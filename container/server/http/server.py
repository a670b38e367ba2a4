"""The HTTP server of one process: listens, watches the clock, drains."""

from __future__ import annotations

import asyncio
import socket

from container.server.http.connection import Connection, Shared
from container.server.http.limits import HttpLimits
from container.server.http.message import Answering

LOOKS_EACH_LIMIT = 4
LONGEST_LOOK_SECONDS = 1.0


class HttpServer:
    """Hands whole requests to `answering`; several processes may share one listening socket."""

    def __init__(self, answering: Answering, *, limits: HttpLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._empty = asyncio.Event()
        self._shared = Shared(
            answering=answering, limits=limits, clock=self._loop.time, closed=self._one_less
        )
        self._listening: asyncio.Server | None = None
        shortest = min(limits.request_seconds, limits.idle_seconds, limits.linger_seconds)
        self._look_seconds = min(LONGEST_LOOK_SECONDS, shortest / LOOKS_EACH_LIMIT)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._shared.connections)

    @property
    def draining(self) -> bool:
        """True from the moment that `drain` is called."""
        return self._shared.draining

    async def start(self, listener: socket.socket | None) -> None:
        """Accepts connections from a socket that listens already; without one, only those that
        `take` brings.
        """
        if listener is not None:
            self._listening = await self._loop.create_server(
                lambda: Connection(self._shared, self._loop), sock=listener
            )
        self._look()

    async def take(self, connection: socket.socket) -> None:
        """Serves a connection that another process accepted."""
        await self._loop.connect_accepted_socket(
            lambda: Connection(self._shared, self._loop), sock=connection
        )

    async def drain(self, seconds: float) -> None:
        """Accepts nothing more, closes idle connections, and gives those at work this long to end;
        then closes them too.
        """
        self._shared.draining = True
        if self._listening is not None:
            self._listening.close()
        for connection in tuple(self._shared.connections):
            connection.drain()
        if not await self._emptied(seconds):
            for connection in tuple(self._shared.connections):
                connection.abort()
            await self._emptied(1.0)
        if self._timer is not None:
            self._timer.cancel()

    async def _emptied(self, seconds: float) -> bool:
        """Whether the last connection is gone in time."""
        if not self._shared.connections:
            return True
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _one_less(self) -> None:
        if self.draining and not self._shared.connections:
            self._empty.set()

    def _look(self) -> None:
        """One timer for all connections: a request costs none."""
        now = self._loop.time()
        for connection in tuple(self._shared.connections):
            connection.look_at_the_clock(now)
        self._timer = self._loop.call_later(self._look_seconds, self._look)
