"""Both ends of a channel over a real socket pair, in one process."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import uvloop

from container.server.processes import frames
from container.server.processes.channel import EngineChannel
from container.server.processes.worker_session import WorkerSession


class Held:
    """A backend that keeps its requests."""

    def __init__(self) -> None:
        self.is_broken = False
        self.waiting = 5
        self.requests: list[tuple[Any, float | None, asyncio.Future]] = []
        self.fault: Exception | None = None
        self.changed = asyncio.Event()

    def refuse(self, rows):
        if self.fault is not None:
            raise self.fault

    def submit(self, rows, *, deadline=None):
        self.refuse(len(rows))
        future = asyncio.get_running_loop().create_future()
        self.requests.append((rows, deadline, future))
        self.changed.set()
        return future

    async def futures(self, count: int = 1) -> list[asyncio.Future]:
        """The answers of so many requests, once they have come."""
        while len(self.requests) < count:
            self.changed.clear()
            await self.changed.wait()
        return [future for _, _, future in self.requests]


class Pair:
    """A worker's channel, the supervisor's session of it, and their calls."""

    def __init__(self) -> None:
        self.backend = Held()
        self.engine_broke: list[bool] = []
        self.failed: list[BaseException] = []
        self.known: list[int] = []
        self.states: asyncio.Queue[int] = asyncio.Queue()

    async def open(self, *, state: int = frames.READY, max_rows: int = 100) -> Pair:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()

        async def metric_values() -> bytes:
            return b"everyone's"

        self.session = WorkerSession(
            state=state,
            backend=None if state == frames.LOADING else self.backend,
            acknowledged=self.known.append,
            engine_broke=lambda: self.engine_broke.append(True),
            failed=self.failed.append,
            all_metric_values=metric_values,
        )
        self.channel = EngineChannel(
            max_rows=max_rows,
            changed=lambda channel: self.states.put_nowait(channel.state),
            metric_values=lambda: b"worker's",
        )
        await loop.create_unix_connection(lambda: self.session, sock=ours)
        await loop.create_unix_connection(lambda: self.channel, sock=theirs)
        assert await self.states.get() == state
        return self

    async def round_trip(self) -> None:
        """Return when every frame that was sent before has arrived."""
        await self.session.request_snapshot()
        await self.channel.all_metric_values()

    async def close(self) -> None:
        self.channel.close()
        await self.session.lost.wait()


def with_pair(**options: Any) -> Callable[..., Callable[..., None]]:
    """Run a coroutine as a test between the two ends of a channel."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        async def run(**arguments: Any) -> None:
            pair = await Pair().open(**options)
            try:
                await asyncio.wait_for(test(pair=pair, **arguments), 20)
            finally:
                await pair.close()

        @wraps(test)
        def run_test(**arguments: Any) -> None:
            uvloop.run(run(**arguments))

        return hide_argument(run_test, "pair")

    return decorate


def hide_argument(test: Callable[..., None], name: str) -> Callable[..., None]:
    """Keep pytest from taking an argument that a decorator fills for a fixture."""
    signature = inspect.signature(test)
    kept = [one for one in signature.parameters.values() if one.name != name]
    test.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return test
