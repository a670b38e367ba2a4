"""Both ends of a link over a real socket pair, in one process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from container.server.processes import frames
from container.server.processes.channel import EngineChannel
from container.server.processes.worker_session import WorkerSession


class Held:
    """A backend that keeps what it is given."""

    def __init__(self) -> None:
        self.is_broken = False
        self.waiting = 5
        self.taken: list[tuple[Any, float | None, asyncio.Future]] = []
        self.fault: Exception | None = None
        self.changed = asyncio.Event()

    def refuse(self, rows):
        if self.fault is not None:
            raise self.fault

    def submit(self, rows, *, deadline=None):
        if self.fault is not None:
            raise self.fault
        future = asyncio.get_running_loop().create_future()
        self.taken.append((rows, deadline, future))
        self.changed.set()
        return future

    async def holds(self, count: int) -> None:
        """Waits until so many requests have come."""
        while len(self.taken) < count:
            self.changed.clear()
            await self.changed.wait()


class Pair:
    """A front's link, the owner's end of it, and what they told."""

    def __init__(self) -> None:
        self.backend = Held()
        self.engine_broke: list[bool] = []
        self.failed: list[BaseException] = []
        self.known: list[int] = []
        self.states: asyncio.Queue[int] = asyncio.Queue()

    async def open(self, *, state: int = frames.READY, max_rows: int = 100) -> Pair:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        _, self.session = await loop.create_unix_connection(lambda: self._session(state), sock=ours)
        _, self.channel = await loop.create_unix_connection(
            lambda: self._channel(max_rows), sock=theirs
        )
        assert await self.states.get() == state
        return self

    def _session(self, state: int) -> WorkerSession:
        return WorkerSession(
            state=state,
            backend=None if state == frames.LOADING else self.backend,
            acknowledged=self.known.append,
            engine_broke=lambda: self.engine_broke.append(True),
            failed=self.failed.append,
            all_metric_values=self._metric_values,
        )

    def _channel(self, max_rows: int) -> EngineChannel:
        return EngineChannel(
            max_rows=max_rows,
            changed=lambda channel: self.states.put_nowait(channel.state),
            metric_values=lambda: b"front's",
        )

    async def _metric_values(self) -> bytes:
        return b"everyone's"

    async def round_trip(self) -> None:
        """Returns when all that was sent before has arrived."""
        await self.session.request_metric_values()
        await self.channel.all_metric_values()

    async def close(self) -> None:
        self.channel.close()
        await self.session.lost.wait()


def pairs(test: Callable[[Pair], Coroutine[Any, Any, None]], **arguments: Any) -> None:
    """Runs a test between the two ends of a link."""

    async def run() -> None:
        pair = await Pair().open(**arguments)
        try:
            await asyncio.wait_for(test(pair), 20)
        finally:
            await pair.close()

    uvloop.run(run())
