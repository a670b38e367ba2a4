"""The server over a loopback socket: it listens, watches the clock and drains."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from container.server.http.messages import HttpLimits, Response
from container.server.http.server import HttpServer

ASK = b"GET /x HTTP/1.1\r\n\r\n"


class SupportedRuntimes:
    """A server on a free port, whose office answers when `open` is set."""

    def __init__(self, **limits):
        self.open = asyncio.Event()
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.writers = []
        self.server = HttpServer(self.answer, limits=HttpLimits(body_bytes=1000, **limits))

    async def answer(self, request):
        self.asked.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Response(200, b"done", "text/plain")

    async def client(self, data=b""):
        """A client that has sent something, and the server has accepted it."""
        before = self.server.connections
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        writer.write(data)
        while self.server.connections == before:
            await asyncio.sleep(0)
        if data == ASK:
            await self.asked.wait()
        return reader, writer


def in_server(scenario, **limits):
    async def scene():
        running = SupportedRuntimes(**limits)
        await running.server.start(running.listener)
        try:
            await scenario(running)
            assert running.server.connections == 0
        finally:
            for writer in running.writers:
                writer.close()
            await asyncio.gather(
                *(writer.wait_closed() for writer in running.writers), return_exceptions=True
            )

    asyncio.run(asyncio.wait_for(scene(), 20))


def test_draining_ends_idle_connections_at_once_and_others_with_their_answer():
    async def scenario(running):
        idle, _ = await running.client()
        busy, _ = await running.client(ASK)
        draining = asyncio.ensure_future(running.server.drain(10))
        assert await idle.read() == b""
        assert running.server.draining and not draining.done()
        running.open.set()
        listed = await busy.read()
        assert (
            listed.endswith(b"done")
            and listed.count(b"200 OK") == 1
            and b"connection: close" in listed
        )
        await draining
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", running.port)

    in_server(scenario)


def test_draining_closes_what_does_not_end_in_time():
    async def scenario(running):
        busy, _ = await running.client(ASK)
        await running.server.drain(0.05)
        await running.cancelled.wait()
        with contextlib.suppress(ConnectionResetError):
            assert await busy.read() == b""

    in_server(scenario)


def test_server_watches_the_clock():
    async def scenario(running):
        slow, _ = await running.client(ASK[:5])
        idle, _ = await running.client()
        assert b"408 Request Timeout" in await slow.read()
        assert await idle.read() == b""
        await running.server.drain(1)

    in_server(scenario, request_seconds=0.1, idle_seconds=0.2, linger_seconds=0.1)


def test_client_that_leaves_is_noticed_while_its_request_runs():
    async def scenario(running):
        _, writer = await running.client(ASK)
        writer.close()
        await running.cancelled.wait()
        await running.server.drain(1)

    in_server(scenario)
