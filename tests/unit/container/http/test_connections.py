"""Connections: answers, their order, limits, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref

import pytest

from container.server.http.messages import HttpLimits, StreamedResponse
from container.server.http.request_reader import RequestReader
from container.server.http.server import ANSWER_PIECE_BYTES, ConnectionGroup
from container.server.http.spool import HELD_BYTES
from tests.unit.container.http.conversation import (
    CHUNKED,
    GET,
    LIMITS,
    POST,
    Conversation,
    run,
    settle,
)

EXPECTS = b"POST /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"


@run
async def test_request_is_answered_and_the_connection_stays():
    client = Conversation()
    await client.send(POST, POST)
    assert (client.statuses, client.bodies) == ([200] * 2, [b"POST/a:abc"] * 2)
    assert client.answers[0][1] == {"content-type": "text/plain", "content-length": "10"}
    assert not client.transport.closed


@run
async def test_request_may_come_byte_by_byte_and_in_chunks():
    client = Conversation()
    await client.send(*(bytes([byte]) for byte in POST))
    await client.send(CHUNKED, b"1\r\na\r\n", b"2\r\nbc\r\n0\r\n", b"\r\n")
    assert client.bodies == [b"POST/a:abc"] * 2


@run
async def test_large_answer_goes_out_as_far_as_the_client_reads_and_the_next_request_waits():
    client = Conversation()
    size = HELD_BYTES + 5
    client.application.large = memoryview(bytes(size))
    write = client.transport.write
    client.transport.write = lambda data: (
        write(data),
        len(data) == ANSWER_PIECE_BYTES and client.connection.pause_writing(),
    )
    await client.send(POST, POST)
    for number in range(1, 9):
        assert len(client.transport.written) < number * ANSWER_PIECE_BYTES + 200
        await client.wait(LIMITS.request_seconds)
        client.connection.resume_writing()
        await settle()
    assert [len(body) for body in client.bodies] == [size, len(b"POST/a:abc")]


@run
async def test_request_knows_if_the_server_answers_no_other():
    first = Conversation(shut=True)
    others = [Conversation(shared=first.shared) for _ in range(2)]

    def are_alone() -> list[bool]:
        alone = [request.is_alone for request in first.application.requests]
        first.application.requests.clear()
        return alone

    await first.send(POST)
    await others[0].send(POST)
    assert are_alone() == [True, False]
    first.leave()
    await others[1].send(POST)  # beside the second's
    assert are_alone() == [False]
    await first.answer()
    first.application.open.clear()
    for client in others:  # in one turn of the event loop
        client.connection.data_received(POST)
    await settle()
    await first.answer()
    others[0].connection.data_received(POST)
    others[0].leave()  # before its task begins
    await others[1].send(POST)
    assert are_alone() == [False, False, True]


def stream(*pieces, fault=None):
    """A client of an application that streams these pieces, and then raises the fault."""

    async def send_pieces(send):
        for piece in pieces:
            await send(piece)
        if fault is not None:
            raise fault

    async def application(request):
        return StreamedResponse("text/event-stream", ((b"a", b"b"),), send_pieces)

    shared = ConnectionGroup(application=application, limits=LIMITS, clock=lambda: 0.0)
    return Conversation(shared=shared)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


@pytest.mark.parametrize(
    ("draining", "request_bytes", "written"),
    [
        (False, POST, b"transfer-encoding: chunked\r\na: b\r\n\r\n2\r\nxy\r\n1\r\nz\r\n0\r\n\r\n"),
        (
            True,
            POST,
            b"connection: close\r\ntransfer-encoding: chunked\r\na: b\r\n\r\n"
            b"2\r\nxy\r\n1\r\nz\r\n0\r\n\r\n",
        ),
        (False, b"GET / HTTP/1.0\r\n\r\n", b"connection: close\r\na: b\r\n\r\nxyz"),
    ],
)
@run
async def test_stream_goes_out_piece_by_piece_and_ends_where_its_http_version_says(
    draining, request_bytes, written
):
    client = stream(b"xy", b"z")
    client.shared.draining = draining
    await client.send(request_bytes)
    assert client.transport.written == STREAM_HEAD + written
    assert client.transport.closed is (b"close" in written)


@run
async def test_stream_that_fails_ends_the_connection_without_the_streams_end():
    contexts = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: contexts.append(context["exception"]))
    fault = ValueError("x")
    client = stream(b"xy", fault=fault)
    await client.send(POST)
    gc.collect()
    assert client.transport.aborted and client.transport.written.endswith(b"xy\r\n")
    assert contexts == [fault]


def test_large_body_lies_in_a_file_and_is_the_same():
    body = bytes(range(256)) * (HELD_BYTES // 256 + 1)
    reader = RequestReader(HttpLimits(body_bytes=len(body)), lambda: 0.0)
    reader.feed(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body))
    tracemalloc.start()
    for start in range(0, len(body), 1 << 18):
        reader.feed(body[start : start + (1 << 18)])
    received = reader.arrived[0].request.body
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert type(received) is memoryview and received == body
    assert held < 1 << 20


def test_body_in_the_smallest_chunks_takes_little_more_than_its_size():
    body = b"ab" * 100_000
    reader = RequestReader(HttpLimits(body_bytes=len(body)), lambda: 0.0)
    reader.feed(CHUNKED)
    tracemalloc.start()
    for _ in range(0, len(body), 200):
        reader.feed(b"2\r\nab\r\n" * 100)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    reader.feed(b"0\r\n\r\n")
    assert type(reader.arrived[0].request.body) is bytes and reader.arrived[0].request.body == body
    assert held < 1.5 * len(body)


@run
async def test_headers_and_path_reach_the_application():
    client = Conversation()
    await client.send(
        b"GET /m%C3%A9/x?a=1&b HTTP/1.1\r\nX-One: 1\r\nx-one: 2\r\n\r\n",
        b"GET http://host:80/p?q HTTP/1.1\r\n\r\n",
    )
    first, second = client.application.requests
    assert (first.path, first.headers) == ("/mé/x", {b"x-one": b"1, 2"})
    assert second.path == "/p"


@run
async def test_pipelined_requests_are_answered_in_order_one_at_a_time():
    client = Conversation(shut=True)
    await client.send(b"".join(GET % number for number in range(5)))
    assert [request.path for request in client.application.requests] == ["/0"]
    await client.answer()
    await settle()
    assert client.bodies == [b"GET/%d:" % number for number in range(5)]


@run
async def test_reading_stops_while_a_request_waits_and_goes_on_after():
    client = Conversation(shut=True)
    await client.send(GET % 1)
    assert client.transport.reading
    await client.send((GET % 2) * 1000)
    assert not client.transport.reading
    assert len(client.connection._reader.arrived) < 300, "tiny requests are not parsed whole"
    await client.answer()
    for _ in range(1100):
        await settle()
    assert client.transport.reading
    assert client.statuses == [200] * 1001


@run
async def test_expected_continue_is_sent_once_and_only_when_it_is_waited_for():
    client = Conversation()
    await client.send(EXPECTS, b"a", b"bc", EXPECTS + b"abc")
    assert client.statuses == [100, 200, 200]


KEEP = b"connection: keep-alive\r\n"
OLD_CHUNKED = b"POST / HTTP/1.0\r\n" + KEEP + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "header", "closed"),
    [
        (b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n", "close", True),
        (b"GET / HTTP/1.0\r\n\r\n", "close", True),
        (b"GET / HTTP/1.0\r\n" + KEEP + b"\r\n", "keep-alive", False),
        (OLD_CHUNKED, "close", True),
        (b"CONNECT a:1 HTTP/1.1\r\n\r\n", "close", True),
    ],
)
@run
async def test_connection_ends_as_the_client_requests(request_bytes, header, closed):
    client = Conversation()
    await client.send(request_bytes)
    assert client.answers[0][1]["connection"] == header
    assert client.transport.closed is closed


@run
async def test_idle_connection_is_closed():
    client = Conversation()
    await client.wait(74)
    await client.send(POST)
    await client.wait(74)
    assert not client.transport.closed
    await client.wait(2)
    assert client.transport.closed and client.statuses == [200]


@pytest.mark.parametrize("fault", [None, ConnectionResetError()])
@run
async def test_client_that_leaves_stops_its_work_at_once(fault):
    client = Conversation(shut=True)
    await client.send(POST + POST)
    if fault is None:
        client.leave()
    else:
        client.connection.connection_lost(fault)
    await settle()
    assert (client.application.cancelled, len(client.application.requests)) == (1, 1)
    assert client.shared.connections == set() and client.transport.written == b""


@run
async def test_work_that_is_cancelled_elsewhere_is_answered_503():
    async def cancelled(request):
        raise asyncio.CancelledError

    shared = ConnectionGroup(application=cancelled, limits=LIMITS, clock=lambda: 0.0)
    client = Conversation(shared=shared)
    await client.send(POST)
    assert client.statuses == [503]
    assert client.sentence == "The server stopped working on this request; try again."


@run
async def test_application_that_fails_is_answered_500_and_reported_to_the_loop():
    contexts = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: contexts.append(context["exception"]))
    client = Conversation()
    client.application.fault = ValueError("secret")
    await client.send(POST, POST)
    gc.collect()
    assert client.statuses == [500, 500] and "secret" not in client.sentence
    assert [str(fault) for fault in contexts] == ["secret", "secret"]


@run
async def test_draining_closes_idle_connections_and_lets_others_end():
    idle, busy, sending = Conversation(), Conversation(shut=True), Conversation()
    await busy.send(POST)
    await sending.send(POST[:10])
    for client in (idle, busy, sending):
        client.shared.draining = True
        client.connection.drain()
    assert [client.transport.closed for client in (idle, busy, sending)] == [True, False, False]
    await busy.answer()
    await sending.send(POST[10:])
    for client in (busy, sending):
        assert client.transport.closed and client.answers[0][1]["connection"] == "close"


@run
async def test_connection_that_is_gone_is_freed_without_the_collector():
    gc.disable()
    try:
        client = Conversation()
        await client.send(POST, POST[:20])
        gone = weakref.ref(client.connection._reader)
        client.leave()
        del client
        await settle()
        assert gone() is None
    finally:
        gc.enable()
