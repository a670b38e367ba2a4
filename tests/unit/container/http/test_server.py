"""The HTTP server on real sockets: the bytes that a client sends, and those that it reads."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest

from container.server.http.messages import HttpLimits, Response, StreamedResponse
from container.server.http.request_reader import RequestReader
from container.server.http.server import HttpServer

LIMITS = HttpLimits(body_bytes=1000, header_bytes=2000, max_connections=3, idle_seconds=0.2)
POST = b"POST /a HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"
GET = b"GET /%d HTTP/1.1\r\n\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
EXPECTS = b"POST /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"


async def echo(request):
    body = f"{request.method}{request.path}:".encode() + request.body
    return Response(200, body, "text/plain")


def listening():
    return socket.create_server(("127.0.0.1", 0))


async def turns():
    """Let all that can run, run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def talk(server, listener, pieces):
    """Send the pieces one after the other, and return all that comes until the server closes."""
    await server.start(listener)
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    for piece in pieces:
        writer.write(piece)
        await turns()
    read = b""
    with suppress(ConnectionError):
        while part := await asyncio.wait_for(reader.read(1 << 16), 20):
            read += part
    await end(server, writer)
    return read


async def start_server(application):
    """A server and its address."""
    server, listener = HttpServer(application, limits=LIMITS), listening()
    await server.start(listener)
    return server, listener.getsockname()


async def end(server, *writers):
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    await server.drain(0)


def converse(*pieces, application=echo, draining=False, **limits):
    """What a client reads that sends these pieces; it waits until its connection is closed."""

    async def play():
        server = HttpServer(application, limits=replace(LIMITS, **limits))
        server._group.draining = draining
        return await talk(server, listening(), pieces)

    return asyncio.run(play())


def answers(read):
    """Status, headers and body of each answer."""
    found = []
    while read:
        head, _, read = read.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        length = 0 if line.endswith("100 Continue") else int(headers["content-length"])
        found.append((int(line.split()[1]), headers, read[:length]))
        read = read[length:]
    return found


def post(*headers):
    """A POST of these headers."""
    return b"\r\n".join((b"POST / HTTP/1.1", *headers, b"", b""))


BOTH_LENGTHS = (b"content-length: 3", b"transfer-encoding: chunked")
LONG = b"x" * 3000
NO_CHUNK = b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", 400, "not HTTP/1.1: Invalid method"),
        (b"BREW / HTTP/1.1\r\n\r\n", 400, "Invalid method"),
        (b"GET / HTTP/2.0\r\n\r\n", 400, "HTTP/2.0 is not spoken here"),
        (b"GET / HTTP/0.9\r\n\r\n", 400, "HTTP/0.9 is not spoken here"),
        (b"GET / HTTP/9.9\r\n\r\n", 400, "Invalid HTTP version"),
        (b"GET /\x00 HTTP/1.1\r\n\r\n", 400, "Invalid char in url"),
        (b"GET / HTTP/1.1\r\na: b\x00c\r\n\r\n", 400, "Invalid header value char"),
        (b"GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n", 400, "Unexpected whitespace after header value"),
        (b"GET / HTTP/1.1\r\na : b\r\n\r\n", 400, "Invalid header token"),
        (b"GET / HTTP/1.1\na: b\n\n", 400, "Expected CRLF"),
        (b"GET /" + LONG + b" HTTP/1.1\r\n\r\n", 431, "more than 2000 bytes"),
        (b"GET / HTTP/1.1\r\na: " + LONG, 431, "more than 2000 bytes"),
        (post(b"a: " + LONG), 431, "more than 2000 bytes"),
        (post(*[b"a: b"] * 400), 431, "more than 2000 bytes"),
        (CHUNKED + b"0\r\n" + b"a: b\r\n" * 400, 431, "more than 2000 bytes"),
        (post(b"content-length: 1001"), 413, "more than 1000 bytes"),
        (post(b"content-length: 18446744073709551615"), 413, "more than 1000 bytes"),
        (CHUNKED + b"3e9\r\n" + b"x" * 1001, 413, "more than 1000 bytes"),
        (post(b"content-length: -1"), 400, "Invalid character in Content-Length"),
        (post(b"content-length: 3, 3") + b"abc", 400, "Invalid character in Content-Length"),
        (
            post(b"content-length: 3", b"content-length: 4") + b"abcd",
            400,
            "Duplicate Content-Length",
        ),
        (post(*BOTH_LENGTHS) + NO_CHUNK, 400, "can't be present with"),
        (post(*BOTH_LENGTHS[::-1]) + NO_CHUNK, 400, "can't be present with"),
        (post(b"transfer-encoding: gzip, chunked") + NO_CHUNK, 400, "must be chunked alone"),
        (post(b"host: a", b"Host: a"), 400, "several Host headers"),
        (CHUNKED + b"-1\r\n", 400, "Invalid character in chunk size"),
        (CHUNKED + b"fffffffffffffffff\r\n", 400, "Chunk size overflow"),
        (CHUNKED + b"1\r\nabc\r\n", 400, "Expected LF after chunk data"),
    ],
)
def test_refuses_a_request_beyond_limits_and_closes(request_bytes, status, words):
    ((found, headers, body),) = answers(converse(request_bytes, POST))
    assert (found, headers["connection"]) == (status, "close")
    assert words in json.loads(body)["error"]


def test_refuses_a_header_that_never_ends():
    pieces = (b"GET / HTTP/1.1\r\na: ", *[b"x" * 150] * 20)
    assert [status for status, _, _ in answers(converse(*pieces))] == [431]


def test_refuses_a_request_that_does_not_arrive_in_time():
    ((status, _, body),) = answers(converse(POST[:-1], request_seconds=0.2))
    assert status == 408 and "did not arrive whole within 0.2 seconds" in json.loads(body)["error"]


UPGRADE = b"POST /a HTTP/1.1\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
"""As Java's HttpClient begins its first request."""
SIZED = UPGRADE + b"content-length: 3\r\n\r\n"
IN_CHUNKS = UPGRADE + b"transfer-encoding: chunked\r\n\r\n"
CHUNKS = b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        (POST + POST,),
        tuple(bytes([byte]) for byte in POST),
        (CHUNKED, b"1\r\na\r\n", b"2\r\nbc\r\n0\r\n", b"\r\n"),
        (SIZED + b"abc",),
        tuple(bytes([byte]) for byte in SIZED + b"abc"),
        (IN_CHUNKS, *(bytes([byte]) for byte in CHUNKS)),
    ],
)
def test_requests_in_any_pieces_are_answered_and_the_connection_stays(pieces):
    found = answers(converse(*pieces, POST))
    headers = {"content-type": "text/plain", "content-length": "10"}
    assert found == [(200, headers, b"POST/a:abc")] * (3 if pieces[0] == POST + POST else 2)


def test_pipelined_requests_are_answered_in_order():
    found = answers(converse(b"".join(GET % number for number in range(300))))
    assert [body for _, _, body in found] == [b"GET/%d:" % number for number in range(300)]


def test_reading_stops_while_a_request_waits():
    go_on = asyncio.Event()

    async def application(request):
        await go_on.wait()
        return await echo(request)

    async def play():
        server, address = await start_server(application)
        _, writer = await asyncio.open_connection(*address)
        writer.write(GET % 1 * 400_000)
        for _ in range(200):
            await asyncio.sleep(0)
        (connection,) = server._group.connections
        held = len(connection._backlog), len(connection._reader.arrived)
        writer.transport.abort()
        await server.drain(0)
        return held

    waiting, arrived = asyncio.run(play())
    assert waiting < 1 << 20 and 0 < arrived < 300


def test_headers_and_path_reach_the_application():
    requests = []

    async def application(request):
        requests.append(request)
        return await echo(request)

    one = b"GET /m%C3%A9/x?a=1&b HTTP/1.1\r\nX-One: 1\r\nx-one: 2\r\n\r\n"
    converse(one, b"GET http://host:80/p?q HTTP/1.1\r\n\r\n", application=application)
    assert (requests[0].path, requests[0].headers) == ("/mé/x", {b"x-one": b"1, 2"})
    assert requests[1].path == "/p"


def test_expected_continue_is_sent_once_and_only_when_it_is_waited_for():
    found = answers(converse(EXPECTS, b"a", b"bc", EXPECTS + b"abc"))
    assert [status for status, _, _ in found] == [100, 200, 200]


KEEP = b"connection: keep-alive\r\n"
OLD_CHUNKED = b"POST / HTTP/1.0\r\n" + KEEP + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "header"),
    [
        (b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n", "close"),
        (b"GET / HTTP/1.0\r\n\r\n", "close"),
        (b"GET / HTTP/1.0\r\n" + KEEP + b"\r\n", "keep-alive"),
        (OLD_CHUNKED, "close"),
        (b"CONNECT a:1 HTTP/1.1\r\n\r\n", "close"),
    ],
)
def test_connection_ends_as_the_client_requests(request_bytes, header):
    first, *others = answers(converse(request_bytes, POST))
    assert first[1]["connection"] == header
    assert len(others) == (header != "close")


def test_request_knows_if_the_server_answers_no_other():
    alone, go_on = [], asyncio.Event()

    async def application(request):
        alone.append(request.is_alone)
        await go_on.wait()
        return await echo(request)

    async def play():
        server, address = await start_server(application)
        clients = [await asyncio.open_connection(*address) for _ in range(3)]
        for (_, writer), count in zip(clients, (1, 2, 3), strict=True):
            writer.write(POST)
            while len(alone) < count:
                await asyncio.sleep(0)
        go_on.set()
        for reader, _ in clients:
            await reader.readuntil(b"abc")
        clients[0][1].write(POST)
        await clients[0][0].readuntil(b"abc")
        await end(server, *(writer for _, writer in clients))

    asyncio.run(play())
    assert alone == [True, False, False, True]


def stream(*pieces, fault=None):
    """An application that streams these pieces, and then raises the fault."""

    async def send_pieces(send):
        for piece in pieces:
            await send(piece)
        if fault is not None:
            raise fault

    async def application(request):
        return StreamedResponse("text/event-stream", ((b"a", b"b"),), send_pieces)

    return application


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
IN_PIECES = b"transfer-encoding: chunked\r\na: b\r\n\r\n2\r\nxy\r\n1\r\nz\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("draining", "request_bytes", "read"),
    [
        (False, POST, IN_PIECES),
        (True, POST, b"connection: close\r\n" + IN_PIECES),
        (False, b"GET / HTTP/1.0\r\n\r\n", b"connection: close\r\na: b\r\n\r\nxyz"),
    ],
)
def test_stream_goes_out_piece_by_piece_and_ends_where_its_http_version_says(
    draining, request_bytes, read
):
    found = converse(request_bytes, application=stream(b"xy", b"z"), draining=draining)
    assert found == STREAM_HEAD + read


def faults_of(application):
    """What a client reads, and the faults that the event loop is told of."""
    contexts = []

    async def play():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: contexts.append(context["exception"]))
        listener = listening()
        read = await talk(HttpServer(application, limits=LIMITS), listener, [POST])
        gc.collect()
        return read

    return asyncio.run(play()), contexts


def test_stream_that_fails_ends_the_connection_without_the_streams_end():
    fault = ValueError("x")
    read, contexts = faults_of(stream(b"xy", fault=fault))
    assert read.endswith(b"xy\r\n") and contexts == [fault]


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        (asyncio.CancelledError(), 503, "The server stopped working on this request; try again."),
        (ValueError("secret"), 500, "The server failed on this request"),
    ],
)
def test_application_that_fails_is_answered(fault, status, words):
    async def application(request):
        raise fault

    read, contexts = faults_of(application)
    ((found, _, body),) = answers(read)
    assert found == status and words in json.loads(body)["error"] and b"secret" not in body
    assert contexts == ([fault] if status == 500 else [])


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
