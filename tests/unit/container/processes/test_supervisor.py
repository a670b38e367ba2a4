"""Real HTTP workers before a supervisor with an echo engine, and clients when either side ends."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from container.server.processes.channel import GONE
from container.server.processes.supervisor import WORKERS_DIE
from tests.unit.container.processes.echo import POISON, Client
from tests.unit.container.processes.supervised import (
    SECONDS,
    Server,
    children,
    process_of,
    supervisor_process,
    with_server,
)

HELD = "the cat sat on a"
"""Seven tokens, which hold the engine of the supervisor's process for good."""
CONNECTION_ENDS = (asyncio.IncompleteReadError, ConnectionResetError)
ANSWERED = 'roundhouse_requests_total{model="tiny-embedder",path="infer",status="200"}'
DEATHS = "roundhouse_http_process_deaths_total"


@with_server()
async def test_every_worker_answers_through_the_one_engine(server: Server):
    for client in await server.clients(4):
        alone = await client.ask("a dog")
        together = await client.ask("a dog", "the cat sat on the mat")
        assert (alone.status, together.status) == (200, 200)
        assert alone.rows[0] == together.rows[0] and len(together.rows) == 2


@with_server()
async def test_connections_are_spread_evenly_and_metrics_are_those_of_all_workers(server: Server):
    clients = await server.clients(6)
    for client in clients:
        await client.ask("a dog")
    while (metrics := await clients[0].metric_values())["roundhouse_connections"] != 6:
        pass
    assert metrics[ANSWERED] == 6
    first, second = [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in children()]
    assert abs(first - second) <= 1


def test_engine_that_cannot_be_loaded_ends_every_worker(archive):
    async def load(server: Server) -> None:
        raise RuntimeError("no engine")

    async def run() -> None:
        with pytest.raises(RuntimeError, match="no engine"):
            await Server(archive, load=load).exit_code()
        assert not children()

    uvloop.run(run())


@with_server()
async def test_engine_that_breaks_makes_every_worker_unhealthy(server: Server):
    clients = await server.clients(2)
    server.engine.dead = True
    assert (await clients[0].ask("a dog")).status == 503
    for client in clients:
        while await client.is_healthy():
            pass
        assert "fails on every request" in (await client.ask("a dog")).sentence


@with_server()
async def test_poisoned_request_is_refused_alone(server: Server):
    first, second = await server.clients(2)
    poison, answer = await asyncio.gather(
        first.ask(" ".join(["cat"] * (POISON - 2))), second.ask("a dog")
    )
    assert (poison.status, answer.status) == (422, 200)


@with_server()
async def test_client_that_leaves_takes_its_rows_out_of_the_queue(server: Server):
    first, second, third = await server.clients(3)
    await server.hold(first, "a dog")
    second.send_texts("a", "b", "c")
    while server.backend.waiting < 3:
        await third.is_healthy()
    second.close()
    while server.backend.waiting:
        await third.is_healthy()
    server.engine.go_on.set()
    assert (await first.answer()).status == 200


@with_server()
async def test_worker_that_is_killed_is_replaced_and_others_go_on(server: Server):
    one, other = await server.clients(2)
    await server.hold(one, "a dog")
    victim = await process_of(one)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(CONNECTION_ENDS):
        await one.answer()
    server.engine.go_on.set()
    assert (await other.ask("a dog")).status == 200
    while victim in children():
        await other.metric_values()
    await other.until_workers_serve()
    assert (await other.metric_values())[DEATHS] == 1
    for client in await server.clients(4):
        assert (await client.ask("a dog")).status == 200
    assert [line["exit_code"] for line in server.events("http_process_died")] == [-9]


@with_server()
async def test_counts_of_a_dead_worker_are_kept(server: Server):
    one, other = await server.clients(2)
    for _ in range(3):
        await one.ask("a dog")
    assert (await other.metric_values())[ANSWERED] == 3
    os.kill(await process_of(one), signal.SIGKILL)
    while (await other.metric_values())[DEATHS] < 1:
        pass
    assert (await other.metric_values())[ANSWERED] == 3


FEW_DESCRIPTORS = (
    "bash",
    "-c",
    f'ulimit -n 40; exec {sys.executable} -m container.server.processes.http_worker "$0" "$1"',
)


@with_server(count=1, command=FEW_DESCRIPTORS)
async def test_worker_without_descriptors_drops_connections_and_goes_on(server: Server, capfd):
    await server.clients(1)
    for client in [await Client.connect(server.port) for _ in range(60)]:
        client.close()
    status = None
    while status != 200:  # those that left may still have their descriptors
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            status = (await (await Client.connect(server.port)).ask("a dog")).status
    assert not server.lines
    assert await server.end() == 0
    log = capfd.readouterr().err
    assert "connection_dropped" in log and "IndexError" not in log


@with_server()
async def test_draining_finishes_running_requests_and_accepts_no_others(server: Server):
    one, other = await server.clients(2)
    await server.hold(one, "a dog")
    server.stop.set()
    assert await other.reader.read() == b""
    with pytest.raises(ConnectionRefusedError):
        await Client.connect(server.port)
    server.engine.go_on.set()
    assert (await one.answer()).status == 200
    assert await server.exit_code() == 0
    assert not children()


@with_server(drain_seconds=0.2)
async def test_draining_has_an_end(server: Server):
    (client,) = await server.clients(1)
    await server.hold(client, "a dog")
    server.stop.set()
    assert await asyncio.wait_for(server.running, SECONDS) == 0
    assert await client.reader.read() == b"" and not children()
    await server.exit_code()


@with_server(command=(sys.executable, "-c", "raise SystemExit(7)"), count=6)
async def test_refuses_to_replace_workers_that_die_at_once(server: Server):
    assert await server.exit_code() == WORKERS_DIE
    assert re.fullmatch(r"HTTP processes ended \d+ times within a minute; .*", server.messages[0])
    assert not children()
    assert server.lines[0]["exit_code"] == 7


def test_clients_are_answered_when_the_supervisor_is_killed_and_no_worker_is_left(archive):
    async def run() -> None:
        async with supervisor_process(archive) as (supervisor, port):
            one, other = [await Client.connect(port) for _ in range(2)]
            for client in (one, other):
                while not await client.is_healthy():
                    pass
            workers = [os.pidfd_open(pid) for pid in children(supervisor.pid)]
            one.send_texts(HELD)
            assert await other.is_healthy()
            supervisor.kill()
            answer = await one.answer()
            assert (answer.status, answer.sentence) == (503, GONE)
            assert await one.reader.read() == b"" and await other.reader.read() == b""
            for worker in workers:
                assert select.select([worker], [], [], SECONDS)[0], "outlived its supervisor"
                os.close(worker)

    uvloop.run(run())
