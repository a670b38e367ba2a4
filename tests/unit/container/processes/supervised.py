"""A server of several real HTTP processes before an echo engine.

In this process or (as a program) in one that can be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from container.server.data_plane.plane import Backend
from container.server.processes.supervisor import WORKER, WorkerSpec, supervise
from container.server.telemetry.failure_log import FailureLog, stderr
from container.server.telemetry.metric_values import MetricValues
from tests.unit.container.processes.echo import Client, EchoEngine, batcher, close_clients

REPOSITORY = Path(__file__).parents[4]
SECONDS = 40.0
ESTABLISHED = "01"
"""Of /proc/net/tcp."""


def environment(archive: Path, **extra: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "SM_MODEL_DIR": str(archive),
        **extra,
    }


class Server:
    """What a test has of the server that it runs."""

    def __init__(
        self,
        archive: Path,
        *,
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
        self.format_fault: list[str] = []
        self._spec = WorkerSpec(
            count=count,
            environment=environment(archive),
            command=command,
            heartbeat_seconds=heartbeat_seconds,
        )
        self._drain_seconds = drain_seconds
        self._log = FailureLog(lambda line: self.lines.append(json.loads(line)))

    def start(self, load: Callable[[], Awaitable[Backend]] | None = None) -> None:
        self.running = asyncio.ensure_future(self._own(self._load if load is None else load))

    async def _own(self, load: Callable[[], Awaitable[Backend]]) -> int:
        return await supervise(
            listener=self.listener,
            workers=self._spec,
            load=load,
            stop=self.stop,
            drain_seconds=self._drain_seconds,
            metric_values=MetricValues(),
            log=self._log,
            say=self.format_fault.append,
        )

    async def _load(self) -> Backend:
        self.backend = batcher(self.engine)
        return self.backend

    async def clients(self, count: int) -> list[Client]:
        """Clients of a server that answers, its processes having the same number of them.

        Or one more.
        """
        client = await Client.connected(self.port)
        while (await client.request("GET", "/ping")).status != 200:
            pass
        while (await client.metric_values())["roundhouse_http_processes"] < self._spec.count:
            pass
        client.close()
        return [await Client.connected(self.port) for _ in range(count)]

    async def hold(self, client: Client, *texts: str) -> None:
        """Sends a request and returns when the engine has begun, and will not end, it."""
        self.engine.go_on.clear()
        self.engine.running.clear()
        client.send("POST", "/invocations", json.dumps({"inputs": texts}).encode())
        if not await asyncio.to_thread(self.engine.running.wait, SECONDS):
            raise TimeoutError

    async def ended(self) -> int:
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
        return await self.ended()


async def serve(archive: Path) -> int:
    """Owns until this process is killed; says its port."""
    stop = asyncio.Event()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    engine = EchoEngine()
    held = EchoEngine.prepare

    def prepare(rows: Any) -> Any:
        if len(rows[0]) == 7:
            engine.go_on.clear()
        return held(engine, rows)

    engine.prepare = prepare  # type: ignore[method-assign]

    async def load() -> Backend:
        return batcher(engine)

    print(listener.getsockname()[1], flush=True)
    return await supervise(
        listener=listener,
        workers=WorkerSpec(count=2, environment=environment(archive)),
        load=load,
        stop=stop,
        drain_seconds=5,
        metric_values=MetricValues(),
        log=FailureLog(stderr),
        say=print,
    )


def served(
    archive: Path, test: Callable[[Server], Coroutine[Any, Any, None]], **arguments: Any
) -> None:
    async def run() -> None:
        server = Server(archive, **arguments)
        server.start()
        try:
            await asyncio.wait_for(test(server), SECONDS)
        finally:
            if not server.running.done():
                await server.end()

    uvloop.run(run())


def children() -> list[int]:
    """The HTTP processes of this process."""
    return children_of(os.getpid())


def children_of(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


async def process_of(client: Client, processes: list[int]) -> int:
    """Which of the processes has the other end of a client's connection, once one has it."""
    ends = [f":{client.writer.get_extra_info(end)[1]:04X}" for end in ("peername", "sockname")]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (inode,) = [
        row[9]
        for row in rows
        if [place[-5:] for place in row[1:3]] == ends and row[3] == ESTABLISHED
    ]
    while True:  # on its way to a process a connection is nobody's
        for pid in processes:
            if f"socket:[{inode}]" in [
                str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()
            ]:
                return pid
        await asyncio.sleep(0)


if __name__ == "__main__":
    sys.exit(uvloop.run(serve(Path(sys.argv[1]))))
