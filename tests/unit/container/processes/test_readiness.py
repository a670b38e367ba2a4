"""Real HTTP processes before an owner.

When they are healthy, and what becomes of one that hangs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

from container.server.processes.supervisor import HUNG_HEARTBEATS
from tests.unit.container.processes.echo import Client, batcher, close_clients
from tests.unit.container.processes.supervised import (
    SECONDS,
    Server,
    children,
    environment,
    process_of,
    served,
)


def test_ping_is_unhealthy_until_the_engine_is_loaded(archive):
    async def run() -> None:
        server, loaded = Server(archive), asyncio.Event()

        async def load() -> Any:
            await loaded.wait()
            return await server._load()

        server.start(load)
        client = await Client.connected(server.port)
        assert (await client.request("GET", "/ping")).status == 503
        assert "loading" in (await client.ask("a dog")).sentence
        loaded.set()
        while (await client.request("GET", "/ping")).status == 503:
            pass
        assert (await client.ask("a dog")).status == 200
        assert await server.end() == 0

    uvloop.run(run())


class Loading:
    """A server that loads until it is told, and two clients, one of each process."""

    def __init__(self, archive: Path, **arguments: Any) -> None:
        self.server, self._loaded = Server(archive, **arguments), asyncio.Event()

    async def begin(self) -> tuple[Client, Client]:
        async def load() -> Any:
            await self._loaded.wait()
            return await self.server._load()

        self.server.start(load)
        first = await Client.connected(self.server.port)
        while (await first.metric_values())["roundhouse_http_processes"] < 2:
            pass
        mine = await process_of(first, children())
        while (
            await process_of(second := await Client.connected(self.server.port), children()) == mine
        ):
            second.close()
        return first, second

    def end(self) -> None:
        self._loaded.set()


async def answers(client: Client) -> None:
    """Until requests are answered."""
    while (await client.ask("a dog")).status == 503:
        pass


@pytest.mark.parametrize("how", ["goes on", "is killed"])
def test_no_process_is_healthy_before_every_other_answers(archive, how):
    async def run() -> None:
        loading = Loading(archive, heartbeat_seconds=SECONDS)
        one, other = await loading.begin()
        late = await process_of(other, children())
        os.kill(late, signal.SIGSTOP)
        loading.end()
        await answers(one)
        for _ in range(20):
            assert (await one.request("GET", "/ping")).status == 503
        os.kill(late, signal.SIGCONT if how == "goes on" else signal.SIGKILL)
        while (await one.request("GET", "/ping")).status == 503:
            pass
        if how == "goes on":
            assert (await other.ask("a dog")).status == 200
        while late in children() and how == "is killed":
            await one.metric_values()
        while (await one.metric_values())["roundhouse_http_processes"] < 2:
            again = await Client.connected(loading.server.port)
            assert (await again.request("GET", "/ping")).status == 200
            again.close()
        for client in await loading.server.clients(4):
            assert (await client.request("GET", "/ping")).status == 200
        assert await loading.server.end() == 0

    uvloop.run(run())


def test_process_that_hangs_is_killed_and_replaced(archive):
    async def test(server: Server) -> None:
        one, other = await server.clients(2)
        victim = await process_of(one, children())
        os.kill(victim, signal.SIGSTOP)
        while victim in children():
            assert (await other.ask("a dog")).status == 200
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await one.answer()
        while (await other.metric_values())["roundhouse_http_processes"] < 2:
            pass
        for client in await server.clients(4):
            assert (await client.ask("a dog")).status == 200
        (line,) = [line for line in server.lines if line["event"] == "http_process_hangs"]
        assert line["seconds"] == pytest.approx(HUNG_HEARTBEATS * 0.2)
        assert [
            line["exit_code"] for line in server.lines if line["event"] == "http_process_died"
        ] == [-9]

    served(archive, test, heartbeat_seconds=0.2)


def test_process_that_never_says_anything_is_killed(archive):
    async def run() -> None:
        silent = "import sys, time; time.sleep(60)"
        server = Server(
            archive, command=(sys.executable, "-c", silent), count=1, heartbeat_seconds=0.001
        )
        server.start()
        while not server.lines:
            await asyncio.sleep(0)
        assert server.lines[0]["event"] == "http_process_hangs"
        await server.end()

    uvloop.run(run())


def test_engine_that_breaks_while_nobody_waits_makes_every_process_unhealthy(archive):
    async def test(server: Server) -> None:
        one, other = await server.clients(2)
        await server.hold(one, "a dog")
        server.engine.dead = True
        one.close()
        while not any("499" in name for name in await other.metric_values()):
            pass
        server.engine.go_on.set()
        await healthy(other, is_so=False)
        assert server.backend.is_broken

    served(archive, test, heartbeat_seconds=0.05)


async def healthy(client: Client, *, is_so: bool) -> None:
    """Until /ping says so; no timeout around it would do.

    For Python 3.11 loses cancellations where answers are quick.
    """
    latest = time.monotonic() + SECONDS / 2
    while ((await client.request("GET", "/ping")).status == 200) is not is_so:
        assert time.monotonic() < latest


def test_engine_that_hangs_makes_every_process_unhealthy(archive):
    async def run() -> None:
        server = Server(archive, heartbeat_seconds=0.05)

        async def load() -> Any:
            server.backend = batcher(server.engine, run_seconds=0.2)
            return server.backend

        server.start(load)
        one, other = await server.clients(2)
        await server.hold(one, "a dog")
        try:
            await healthy(other, is_so=False)
            assert server.backend.is_broken and (await other.ask("a cat")).status == 503
        finally:
            server.engine.go_on.set()
            assert (await one.answer()).status == 200
            await server.end()

    uvloop.run(run())


def test_owner_that_hangs_makes_every_process_unhealthy_until_it_goes_on(archive):
    async def run() -> None:
        program = str(Path(__file__).with_name("supervised.py"))
        supervisor = await asyncio.create_subprocess_exec(
            sys.executable,
            program,
            str(archive),
            env=environment(archive),
            stdout=asyncio.subprocess.PIPE,
        )
        assert supervisor.stdout is not None
        try:
            client = await Client.connected(
                int(await asyncio.wait_for(supervisor.stdout.readline(), SECONDS))
            )
            await healthy(client, is_so=True)
            supervisor.send_signal(signal.SIGSTOP)
            await healthy(client, is_so=False)
            supervisor.send_signal(signal.SIGCONT)
            await healthy(client, is_so=True)
            assert (await client.ask("a dog")).status == 200
        finally:
            supervisor.kill()
            await supervisor.communicate()
            await close_clients()

    uvloop.run(run())
