"""Real HTTP processes before an owner with an echo engine.

What clients see when either side ends.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from container.server.processes.channel import GONE
from container.server.processes.supervisor import WORKERS_DIE
from tests.unit.container.processes.echo import POISON, Client, close_clients
from tests.unit.container.processes.supervised import (
    SECONDS,
    Server,
    children,
    children_of,
    environment,
    process_of,
    served,
)

HELD = "the cat sat on a"
"""Seven tokens, which make the owner program's engine wait for good."""


def test_every_process_answers_through_the_one_engine(archive):
    async def test(server: Server) -> None:
        clients = await server.clients(4)
        for client in clients:
            alone, together = (
                await client.ask("a dog"),
                await client.ask("a dog", "the cat sat on the mat"),
            )
            assert (alone.status, together.status) == (200, 200)
            assert alone.rows[0] == together.rows[0] and len(together.rows) == 2

    served(archive, test)


def test_connections_are_shared_out_evenly_and_metrics_are_everyones(archive):
    async def test(server: Server) -> None:
        clients = await server.clients(6)
        for client in clients:
            await client.ask("a dog")
        while (found := await clients[0].metric_values())["roundhouse_connections"] != 6:
            pass
        assert (
            found['roundhouse_requests_total{model="tiny-embedder",path="infer",status="200"}'] == 6
        )
        sockets = [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in children()]
        assert len(sockets) == 2 and abs(sockets[0] - sockets[1]) <= 1

    served(archive, test)


def test_engine_that_cannot_be_loaded_ends_every_process(archive):
    async def run() -> None:
        server = Server(archive)

        async def load() -> Any:
            raise RuntimeError("no engine")

        server.start(load)
        with pytest.raises(RuntimeError, match="no engine"):
            await server.ended()
        assert not children()

    uvloop.run(run())


def test_engine_that_breaks_makes_every_process_unhealthy(archive):
    async def test(server: Server) -> None:
        clients = await server.clients(2)
        server.engine.dead = True
        assert (await clients[0].ask("a dog")).status == 503
        for client in clients:
            while (await client.request("GET", "/ping")).status == 200:
                pass
            assert "fails on every request" in (await client.ask("a dog")).sentence

    served(archive, test)


def test_poisoned_request_is_refused_alone(archive):
    async def test(server: Server) -> None:
        clients = await server.clients(2)
        poison, answer = await asyncio.gather(
            clients[0].ask(" ".join(["cat"] * (POISON - 2))), clients[1].ask("a dog")
        )
        assert (poison.status, answer.status) == (422, 200)

    served(archive, test)


def test_client_that_leaves_takes_its_rows_out_of_the_owners_queue(archive):
    async def test(server: Server) -> None:
        first, second, third = await server.clients(3)
        await server.hold(first, "a dog")
        second.send("POST", "/invocations", b'{"inputs": ["a", "b", "c"]}')
        while server.backend.waiting < 3:
            await third.request("GET", "/ping")
        second.close()
        while server.backend.waiting:
            await third.request("GET", "/ping")
        server.engine.go_on.set()
        assert (await first.answer()).status == 200

    served(archive, test)


def test_process_that_is_killed_is_replaced_and_others_go_on(archive):
    async def test(server: Server) -> None:
        one, other = await server.clients(2)
        await server.hold(one, "a dog")
        victim = await process_of(one, children())
        os.kill(victim, signal.SIGKILL)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await one.answer()
        server.engine.go_on.set()
        assert (await other.ask("a dog")).status == 200
        while (await other.metric_values())[
            "roundhouse_http_processes"
        ] < 2 or victim in children():
            pass
        assert (await other.metric_values())["roundhouse_http_process_deaths_total"] == 1
        for client in await server.clients(4):
            assert (await client.ask("a dog")).status == 200
        (line,) = [line for line in server.lines if line["event"] == "http_process_died"]
        assert line["exit_code"] == -9

    served(archive, test)


def test_counts_of_a_dead_process_are_kept(archive):
    async def test(server: Server) -> None:
        one, other = await server.clients(2)
        name = 'roundhouse_requests_total{model="tiny-embedder",path="infer",status="200"}'
        for _ in range(3):
            await one.ask("a dog")
        assert (await other.metric_values())[name] == 3
        os.kill(await process_of(one, children()), signal.SIGKILL)
        while (await other.metric_values())["roundhouse_http_process_deaths_total"] < 1:
            pass
        assert (await other.metric_values())[name] == 3

    served(archive, test)


def test_process_without_descriptors_drops_connections_and_goes_on(archive, capfd):
    limited = (
        "bash",
        "-c",
        f'ulimit -n 40; exec {sys.executable} -m container.server.processes.http_worker "$0" "$1"',
    )

    async def test(server: Server) -> None:
        await server.clients(1)
        for client in [await Client.connected(server.port) for _ in range(60)]:
            client.close()
        status = None
        while status != 200:  # those that left may still have their descriptors
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                status = (await (await Client.connected(server.port)).ask("a dog")).status
        assert not server.lines

    served(archive, test, count=1, command=limited)
    format_fault = capfd.readouterr().err
    assert "connection_dropped" in format_fault and "IndexError" not in format_fault


def test_draining_lets_taken_requests_finish_and_takes_no_others(archive):
    async def test(server: Server) -> None:
        one, other = await server.clients(2)
        await server.hold(one, "a dog")
        server.stop.set()
        assert await other.reader.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await Client.connected(server.port)
        server.engine.go_on.set()
        assert (await one.answer()).status == 200
        assert await server.ended() == 0
        assert not children()

    served(archive, test)


def test_draining_has_an_end(archive):
    async def test(server: Server) -> None:
        (client,) = await server.clients(1)
        await server.hold(client, "a dog")
        server.stop.set()
        assert await asyncio.wait_for(server.running, SECONDS) == 0
        assert await client.reader.read() == b"" and not children()
        await server.ended()

    served(archive, test, drain_seconds=0.2)


def test_refuses_to_replace_processes_that_die_at_once(archive):
    async def run() -> None:
        server = Server(archive, command=(sys.executable, "-c", "raise SystemExit(7)"), count=6)
        server.start()
        assert await server.ended() == WORKERS_DIE
        assert re.fullmatch(
            r"HTTP processes ended \d+ times within a minute; .*", server.format_fault[0]
        )
        assert not children()
        assert server.lines[0]["exit_code"] == 7

    uvloop.run(run())


def test_clients_hear_at_once_that_the_owner_was_killed_and_nothing_is_left(archive):
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
        port = int(await asyncio.wait_for(supervisor.stdout.readline(), SECONDS))
        one, other = [await Client.connected(port) for _ in range(2)]
        for client in (one, other):
            while (await client.request("GET", "/ping")).status != 200:
                pass
        processes = [os.pidfd_open(pid) for pid in children_of(supervisor.pid)]
        one.send("POST", "/invocations", b'{"inputs": ["%s"]}' % HELD.encode())
        assert (await other.request("GET", "/ping")).status == 200
        supervisor.kill()
        answer = await one.answer()
        assert (answer.status, answer.sentence) == (503, GONE)
        assert await one.reader.read() == b"" and await other.reader.read() == b""
        for process in processes:
            assert select.select([process], [], [], SECONDS)[0], (
                "an HTTP process outlived its owner"
            )
            os.close(process)
        await supervisor.wait()
        await close_clients()

    uvloop.run(run())
