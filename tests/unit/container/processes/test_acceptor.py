"""Connections in turn, over real sockets."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from container.server.processes.acceptor import Acceptor, receive_connection


class Bench:
    """A porter and the doors of processes that do not exist."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.acceptor = Acceptor(self.listener)
        self.ends: list[socket.socket] = []

    def worker_socket(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setblocking(False)
        self.ends += [ours, theirs]
        return ours, theirs

    async def connect(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port))
        self.ends.append(client)
        return client

    async def next(self, theirs: socket.socket) -> tuple[str, int]:
        """The client of the next connection at a door."""
        loop, come = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(theirs.fileno(), come.set)
        await asyncio.wait_for(come.wait(), 20)
        loop.remove_reader(theirs.fileno())
        connection = receive_connection(theirs)
        assert connection is not None
        with connection:
            return connection.getpeername()


def tried(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        bench = Bench()
        try:
            await test(bench)
        finally:
            bench.acceptor.close()
            for end in bench.ends:
                end.close()

    uvloop.run(run())


def test_processes_get_connections_in_turn():
    async def test(bench: Bench) -> None:
        worker_sockets = [bench.worker_socket() for _ in range(3)]
        for ours, _ in worker_sockets:
            bench.acceptor.add(ours)
        for turn in range(6):
            client = await bench.connect()
            assert await bench.next(worker_sockets[turn % 3][1]) == client.getsockname()

    tried(test)


def test_connections_wait_until_a_process_serves():
    async def test(bench: Bench) -> None:
        client = await bench.connect()
        ours, theirs = bench.worker_socket()
        assert len(bench.acceptor) == 0
        bench.acceptor.add(ours)
        assert await bench.next(theirs) == client.getsockname()

    tried(test)


def test_dead_process_loses_its_turns_to_others():
    async def test(bench: Bench) -> None:
        (dead, its_end), (ours, theirs) = bench.worker_socket(), bench.worker_socket()
        bench.acceptor.add(dead)
        bench.acceptor.add(ours)
        its_end.close()
        for _ in range(2):
            client = await bench.connect()
            assert await bench.next(theirs) == client.getsockname()
        bench.acceptor.remove(dead)
        assert len(bench.acceptor) == 1

    tried(test)


def test_connection_waits_while_every_door_is_full():
    async def test(bench: Bench) -> None:
        ours, theirs = bench.worker_socket()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        bench.acceptor.add(ours)
        clients = [await bench.connect() for _ in range(60)]
        found = [await bench.next(theirs) for _ in clients]
        assert sorted(found) == sorted(client.getsockname() for client in clients)

    tried(test)


def test_refuses_connections_once_closed():
    async def test(bench: Bench) -> None:
        ours, _ = bench.worker_socket()
        bench.acceptor.add(ours)
        bench.acceptor.close()
        with pytest.raises(ConnectionRefusedError):
            await bench.connect()

    tried(test)


def test_door_says_that_the_owner_left():
    async def test(bench: Bench) -> None:
        ours, theirs = bench.worker_socket()
        assert receive_connection(theirs) is None
        ours.close()
        with pytest.raises(EOFError):
            receive_connection(theirs)

    tried(test)


def test_connection_without_a_descriptor_is_told_and_the_next_one_comes():
    async def test(bench: Bench) -> None:
        ours, theirs = bench.worker_socket()
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

    tried(test)
