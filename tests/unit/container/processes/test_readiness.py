"""Real HTTP workers before a supervisor: when they are healthy, and when one hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import uvloop

from container.server.processes.supervisor import HUNG_HEARTBEATS
from tests.unit.container.processes.echo import Client, batcher
from tests.unit.container.processes.supervised import (
    SECONDS,
    Server,
    children,
    process_of,
    supervisor_process,
    with_server,
)


async def until_health_is(client: Client, healthy: bool) -> None:
    """No timeout around it would do: Python 3.11 loses cancellations where answers are quick."""
    latest = time.monotonic() + SECONDS / 2
    while await client.is_healthy() is not healthy:
        assert time.monotonic() < latest


class Loading:
    """A server that loads until `loaded` is set."""

    def __init__(self, archive: Path, **options: float) -> None:
        self.loaded = asyncio.Event()

        async def load(server: Server) -> None:
            await self.loaded.wait()

        self.server = Server(archive, load=load, **options)

    async def clients(self) -> tuple[Client, Client]:
        """A client of each worker."""
        first = await Client.connect(self.server.port)
        await first.until_workers_serve()
        worker = await process_of(first)
        while await process_of(second := await Client.connect(self.server.port)) == worker:
            second.close()
        return first, second


def test_ping_is_unhealthy_until_the_engine_is_loaded(archive):
    async def run() -> None:
        loading = Loading(archive)
        client = await Client.connect(loading.server.port)
        assert (await client.get("/ping")).status == 503
        assert "loading" in (await client.ask("a dog")).sentence
        loading.loaded.set()
        await until_health_is(client, True)
        assert (await client.ask("a dog")).status == 200
        assert await loading.server.end() == 0

    uvloop.run(run())


@pytest.mark.parametrize("is_killed", [False, True])
def test_no_worker_is_healthy_before_every_other_answers(archive, is_killed):
    async def run() -> None:
        loading = Loading(archive, heartbeat_seconds=SECONDS)
        one, other = await loading.clients()
        late = await process_of(other)
        os.kill(late, signal.SIGSTOP)
        loading.loaded.set()
        while (await one.ask("a dog")).status == 503:
            pass
        for _ in range(20):
            assert not await one.is_healthy()
        os.kill(late, signal.SIGKILL if is_killed else signal.SIGCONT)
        await until_health_is(one, True)
        if not is_killed:
            assert (await other.ask("a dog")).status == 200
        while late in children() and is_killed:
            await one.metric_values()
        while (await one.metric_values())["roundhouse_http_processes"] < 2:
            again = await Client.connect(loading.server.port)
            assert await again.is_healthy()
            again.close()
        for client in await loading.server.clients(4):
            assert await client.is_healthy()
        assert await loading.server.end() == 0

    uvloop.run(run())


HEARTBEAT_SECONDS = 0.5
"""A busy machine may take a second or two to run a worker that does not hang."""


@with_server(heartbeat_seconds=HEARTBEAT_SECONDS)
async def test_worker_that_hangs_is_killed_and_replaced(server: Server):
    one, other = await server.clients(2)
    victim = await process_of(one)
    os.kill(victim, signal.SIGSTOP)
    while victim in children():
        assert (await other.ask("a dog")).status == 200
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await one.answer()
    await other.until_workers_serve()
    for client in await server.clients(4):
        assert (await client.ask("a dog")).status == 200
    (line,) = server.events("http_process_hangs")
    assert line["seconds"] == pytest.approx(HUNG_HEARTBEATS * HEARTBEAT_SECONDS)
    assert [line["exit_code"] for line in server.events("http_process_died")] == [-9]


SILENT = (sys.executable, "-c", "import time; time.sleep(60)")


@with_server(command=SILENT, count=1, heartbeat_seconds=0.001)
async def test_worker_that_never_sends_a_frame_is_killed(server: Server):
    while not server.lines:
        await asyncio.sleep(0)
    assert server.lines[0]["event"] == "http_process_hangs"


@with_server(heartbeat_seconds=HEARTBEAT_SECONDS)
async def test_engine_that_breaks_without_a_client_makes_every_worker_unhealthy(server: Server):
    one, other = await server.clients(2)
    await server.hold(one, "a dog")
    server.engine.dead = True
    one.close()
    while not any("499" in name for name in await other.metric_values()):
        pass
    server.engine.go_on.set()
    await until_health_is(other, False)
    assert server.backend.is_broken


async def load_with_short_runs(server: Server) -> None:
    server.backend = batcher(server.engine, run_seconds=0.2)


@with_server(load=load_with_short_runs, heartbeat_seconds=HEARTBEAT_SECONDS)
async def test_engine_that_hangs_makes_every_worker_unhealthy(server: Server):
    one, other = await server.clients(2)
    await server.hold(one, "a dog")
    await until_health_is(other, False)
    assert server.backend.is_broken and (await other.ask("a cat")).status == 503
    server.engine.go_on.set()
    assert (await one.answer()).status == 200


def test_supervisor_that_hangs_makes_every_worker_unhealthy_until_it_goes_on(archive):
    async def run() -> None:
        async with supervisor_process(archive) as (supervisor, port):
            client = await Client.connect(port)
            await until_health_is(client, True)
            supervisor.send_signal(signal.SIGSTOP)
            await until_health_is(client, False)
            supervisor.send_signal(signal.SIGCONT)
            await until_health_is(client, True)
            assert (await client.ask("a dog")).status == 200

    uvloop.run(run())
