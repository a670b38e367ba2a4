"""The server over a loopback socket: it listens, checks timeouts and drains."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from functools import wraps

import pytest

from container.server.http.messages import HttpLimits, Response
from container.server.http.server import HttpServer

REQUEST = b"GET /x HTTP/1.1\r\n\r\n"


class RunningServer:
    """A server on a free port that answers once `open` is set."""

    def __init__(self, **limits):
        self.open, self.received, self.cancelled = (asyncio.Event() for _ in range(3))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.writers = []
        self.server = HttpServer(self.answer, limits=HttpLimits(body_bytes=1000, **limits))

    async def answer(self, request):
        self.received.set()
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
        if data == REQUEST:
            await self.received.wait()
        return reader, writer


def in_server(**limits):
    """Run a scenario as a test within a running server."""

    def decorate(scenario):
        @wraps(scenario)
        def test():
            asyncio.run(asyncio.wait_for(serve(), 20))

        async def serve():
            running = RunningServer(**limits)
            await running.server.start(running.listener)
            try:
                await scenario(running)
                assert running.server.connections == 0
            finally:
                for writer in running.writers:
                    writer.close()
                closed = (writer.wait_closed() for writer in running.writers)
                await asyncio.gather(*closed, return_exceptions=True)

        del test.__wrapped__  # pytest would take its argument for a fixture
        return test

    return decorate


@in_server()
async def test_draining_ends_idle_connections_at_once_and_others_with_their_answer(running):
    idle, _ = await running.client()
    busy, _ = await running.client(REQUEST)
    draining = asyncio.ensure_future(running.server.drain(10))
    assert await idle.read() == b""
    assert not draining.done()
    running.open.set()
    answer = await busy.read()
    assert answer.endswith(b"done") and answer.count(b"200 OK") == 1
    assert b"connection: close" in answer
    await draining
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", running.port)


@in_server()
async def test_draining_closes_connections_that_do_not_end_in_time(running):
    busy, _ = await running.client(REQUEST)
    await running.server.drain(0.05)
    await running.cancelled.wait()
    with contextlib.suppress(ConnectionResetError):
        assert await busy.read() == b""


@in_server(request_seconds=0.1, idle_seconds=0.2, linger_seconds=0.1)
async def test_server_checks_timeouts(running):
    slow, _ = await running.client(REQUEST[:5])
    idle, _ = await running.client()
    assert b"408 Request Timeout" in await slow.read()
    assert await idle.read() == b""
    await running.server.drain(1)


@in_server()
async def test_client_that_leaves_is_noticed_while_its_request_runs(running):
    _, writer = await running.client(REQUEST)
    writer.close()
    await running.cancelled.wait()
    await running.server.drain(1)
