"""A server of several real HTTP workers before an echo engine.

Its supervisor runs in this process or, as a program, in one that can be killed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import uvloop

from container.server.data_plane.plane import Backend
from container.server.processes.supervisor import WORKER, Supervisor, WorkerSpec
from container.server.telemetry.failure_log import FailureLog, stderr
from container.server.telemetry.metric_values import MetricValues
from tests.unit.container.processes.echo import Client, EchoEngine, batcher, close_clients

REPOSITORY = Path(__file__).parents[4]
SECONDS = 40.0
ESTABLISHED = "01"
"""Of /proc/net/tcp."""


def environment(archive: Path) -> dict[str, str]:
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    return path | {"SM_MODEL_DIR": str(archive)}


class Server:
    """A supervisor of real HTTP workers before an echo engine."""

    def __init__(
        self,
        archive: Path,
        *,
        load: Callable[[Server], Awaitable[Backend]] | None = None,
        command: tuple[str, ...] = WORKER,
        count: int = 2,
        drain_seconds: float = 20.0,
        heartbeat_seconds: float = 1.0,
    ) -> None:
        self.engine = EchoEngine()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self.listener.getsockname()[1]
        self.stop = asyncio.Event()
        self.lines: list[dict[str, Any]] = []
        self.messages: list[str] = []
        self.count, self._load = count, load
        self._log = FailureLog(lambda line: self.lines.append(json.loads(line)))
        workers = WorkerSpec(
            count=count,
            environment=environment(archive),
            command=command,
            heartbeat_seconds=heartbeat_seconds,
        )
        supervisor = Supervisor(
            listener=self.listener, workers=workers, metric_values=MetricValues(), log=self._log
        )
        self.running = asyncio.ensure_future(
            supervisor.serve(
                self.load, self.stop, drain_seconds=drain_seconds, say=self.messages.append
            )
        )

    async def load(self) -> Backend:
        if self._load is not None:
            await self._load(self)
        if not hasattr(self, "backend"):
            self.backend = batcher(self.engine)
        return self.backend

    async def clients(self, count: int) -> list[Client]:
        """Clients of a server that answers, spread evenly over its workers, or one more."""
        client = await Client.connect(self.port)
        while not await client.is_healthy():
            pass
        await client.until_workers_serve(self.count)
        client.close()
        return [await Client.connect(self.port) for _ in range(count)]

    async def hold(self, client: Client, *texts: str) -> None:
        """Send a request and return when the engine has begun it, and will not end it."""
        self.engine.go_on.clear()
        self.engine.running.clear()
        client.send_texts(*texts)
        if not await asyncio.to_thread(self.engine.running.wait, SECONDS):
            raise TimeoutError

    def events(self, event: str) -> list[dict[str, Any]]:
        """The failure log's lines of an event."""
        return [line for line in self.lines if line["event"] == event]

    async def exit_code(self) -> int:
        """The exit code."""
        try:
            return await asyncio.wait_for(self.running, SECONDS)
        finally:
            await close_clients()
            self.engine.go_on.set()
            if hasattr(self, "backend"):
                self.backend.close()
            self._log.close()

    async def end(self) -> int:
        self.stop.set()
        return await self.exit_code()


def with_server(**options: Any) -> Callable[..., Callable[..., None]]:
    """Run a coroutine as a test with a running server of the fixture `archive`."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        async def run(archive: Path, arguments: dict[str, Any]) -> None:
            server = Server(archive, **options)
            try:
                await asyncio.wait_for(test(server, **arguments), SECONDS)
            finally:
                if not server.running.done():
                    await server.end()

        @wraps(test)
        def run_test(archive: Path, **arguments: Any) -> None:
            uvloop.run(run(archive, arguments))

        signature = inspect.signature(test)
        _, *others = signature.parameters.values()
        fixture = inspect.Parameter("archive", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run_test.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[fixture, *others]
        )
        return run_test

    return decorate


@asynccontextmanager
async def supervisor_process(archive: Path) -> AsyncIterator[tuple[Process, int]]:
    """A supervisor in a process of its own, which can be killed, and its port."""
    supervisor = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        str(archive),
        env=environment(archive),
        stdout=asyncio.subprocess.PIPE,
    )
    assert supervisor.stdout is not None
    try:
        yield supervisor, int(await asyncio.wait_for(supervisor.stdout.readline(), SECONDS))
    finally:
        with suppress(ProcessLookupError):
            supervisor.kill()
        await supervisor.communicate()
        await close_clients()


async def serve(archive: Path) -> int:
    """Supervise until this process is killed; seven tokens hold the engine for good."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    engine = EchoEngine()
    prepare = engine.prepare

    def hold(rows: Any) -> Any:
        if len(rows[0]) == 7:
            engine.go_on.clear()
        return prepare(rows)

    engine.prepare = hold  # type: ignore[method-assign]

    async def load() -> Backend:
        return batcher(engine)

    print(listener.getsockname()[1], flush=True)
    supervisor = Supervisor(
        listener=listener,
        workers=WorkerSpec(count=2, environment=environment(archive)),
        metric_values=MetricValues(),
        log=FailureLog(stderr),
    )
    return await supervisor.serve(load, asyncio.Event(), drain_seconds=5, say=print)


def children(parent: int | None = None) -> list[int]:
    """The child processes of a process, of this one by default."""
    pid = os.getpid() if parent is None else parent
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def process_of(client: Client) -> int:
    """The worker that has the other end of a client's connection, once one has it."""
    ends = [f":{client.writer.get_extra_info(end)[1]:04X}" for end in ("peername", "sockname")]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (inode,) = [
        row[9]
        for row in rows
        if [address[-5:] for address in row[1:3]] == ends and row[3] == ESTABLISHED
    ]
    while True:  # on its way to a process a connection is nobody's
        for pid in children():
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):  # closed in between
                    if str(entry.readlink()) == f"socket:[{inode}]":
                        return pid
        await asyncio.sleep(0)


if __name__ == "__main__":
    sys.exit(uvloop.run(serve(Path(sys.argv[1]))))
