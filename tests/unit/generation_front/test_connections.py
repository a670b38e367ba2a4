"""Connections that are idle, slow, too many, or not read."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.unit.generation_front.fronts import completion, running_front, until

pytestmark = pytest.mark.unit
HEAD = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def run(play, **limits):
    async def inner():
        async with running_front(**limits) as front:
            return await play(front)

    return asyncio.run(inner())


async def connect(front):
    return await asyncio.open_connection("127.0.0.1", front.port)


def request(order, **more):
    body = json.dumps(completion(order, **more)).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_an_idle_connection_and_a_slow_header_are_closed():
    async def play(front):
        idle, slow = await connect(front), await connect(front)
        slow[1].write(HEAD)
        ends = [await asyncio.wait_for(reader.read(), 5) for reader, _ in (idle, slow)]
        used, writer = await connect(front)
        writer.write(request({}))
        answer = await asyncio.wait_for(used.read(), 5)
        for _, open_writer in (idle, slow, (used, writer)):
            open_writer.close()
        return ends, answer.split(b"\r\n", 1)[0]

    assert run(play, idle_seconds=0.2) == ([b"", b""], b"HTTP/1.1 200 OK")


def test_a_stream_that_lasts_longer_than_the_idle_time_goes_on():
    text = run(lambda front: front.stream({"events": 4, "pause": 0.1}), idle_seconds=0.1)
    assert text.count("é") == 4 and text.endswith("data: [DONE]\n\n")


def test_refuses_more_connections_than_there_may_be():
    async def play(front):
        first, _ = pair = await connect(front)
        pair[1].write(request({}))
        await first.readuntil(b"\r\n\r\n")
        refused, writer = await connect(front)
        answer = await asyncio.wait_for(refused.read(), 5)
        for open_writer in (pair[1], writer):
            open_writer.close()
        return answer

    answer = run(play, connections=1)
    assert answer.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1\r\n" in answer


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_does_not_read_holds_the_engine_back_and_is_closed(streams):
    async def play(front):
        _, writer = await connect(front)
        writer.transport.pause_reading()
        order = {"events": 800, "size": 65_536} if streams else {"size": 1 << 25}
        writer.write(request(order, stream=streams))
        await until(lambda: front.program.requests)
        await until(lambda: front.program.running == 0)
        await until(lambda: not front.server.connections)
        writer.transport.abort()
        return front.program.sent

    sent = run(play, reader_seconds=0.3)
    assert not streams or 0 < sent < 600
