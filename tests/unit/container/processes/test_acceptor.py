"""Connections are passed to the workers in turn, over real sockets."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from functools import wraps

import pytest
import uvloop

from container.server.processes.acceptor import Acceptor, receive_connection
from tests.unit.container.processes.pairs import hide_argument


class Bench:
    """An acceptor, clients, and the sockets of workers that do not exist."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.acceptor = Acceptor(self.listener)
        self.sockets: list[socket.socket] = []

    def worker(self, *, serves: bool = True) -> tuple[socket.socket, socket.socket]:
        """The supervisor's and the worker's end of a worker's socket."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setblocking(False)
        self.sockets += [ours, theirs]
        if serves:
            self.acceptor.add(ours)
        return ours, theirs

    def connect(self) -> tuple[str, int]:
        """The address of a new client."""
        self.sockets.append(socket.create_connection(self.listener.getsockname()))
        return self.sockets[-1].getsockname()

    async def next(self, theirs: socket.socket) -> tuple[str, int]:
        """The client of the next connection of a worker."""
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(theirs.fileno(), readable.set)
        await asyncio.wait_for(readable.wait(), 20)
        loop.remove_reader(theirs.fileno())
        connection = receive_connection(theirs)
        assert connection is not None
        with connection:
            return connection.getpeername()


def in_bench(test: Callable[[Bench], Awaitable[None]]) -> Callable[..., None]:
    async def run() -> None:
        bench = Bench()
        try:
            await test(bench)
        finally:
            bench.acceptor.close()
            for end in bench.sockets:
                end.close()

    @wraps(test)
    def run_test() -> None:
        uvloop.run(run())

    return hide_argument(run_test, "bench")


@in_bench
async def test_workers_get_connections_in_turn(bench: Bench):
    workers = [bench.worker()[1] for _ in range(3)]
    for theirs in workers * 2:
        client = bench.connect()
        assert await bench.next(theirs) == client


@in_bench
async def test_connections_wait_until_a_worker_serves(bench: Bench):
    client = bench.connect()
    assert len(bench.acceptor) == 0
    _, theirs = bench.worker()
    assert await bench.next(theirs) == client


@in_bench
async def test_dead_worker_loses_its_turns_to_others(bench: Bench):
    (dead, dead_end), (_, theirs) = bench.worker(), bench.worker()
    dead_end.close()
    for _ in range(2):
        client = bench.connect()
        assert await bench.next(theirs) == client
    bench.acceptor.remove(dead)
    assert len(bench.acceptor) == 1


@in_bench
async def test_connection_waits_while_every_workers_socket_is_full(bench: Bench):
    ours, theirs = bench.worker(serves=False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    bench.acceptor.add(ours)
    clients = [bench.connect() for _ in range(60)]
    assert sorted([await bench.next(theirs) for _ in clients]) == sorted(clients)


@in_bench
async def test_refuses_connections_once_closed(bench: Bench):
    bench.worker()
    address = bench.listener.getsockname()
    bench.acceptor.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


@in_bench
async def test_worker_notices_that_the_supervisor_is_gone(bench: Bench):
    ours, theirs = bench.worker(serves=False)
    assert receive_connection(theirs) is None
    ours.close()
    with pytest.raises(EOFError):
        receive_connection(theirs)


@in_bench
async def test_connection_without_a_descriptor_is_reported_and_the_next_one_comes(bench: Bench):
    ours, theirs = bench.worker(serves=False)
    socket.send_fds(ours, [b"c"], [bench.listener.fileno()])
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(OSError, match="no file descriptor left"):
            receive_connection(theirs)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    socket.send_fds(ours, [b"c"], [bench.listener.fileno()])
    with receive_connection(theirs) as again:
        assert again.getsockname() == bench.listener.getsockname()
