"""What is not a request within limits is refused in one sentence, and nothing after it is read."""

from __future__ import annotations

import pytest

from tests.unit.container.http.conversation import CHUNKED, GET, POST, Conversation, run, settle


def post(*headers: bytes) -> bytes:
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
@run
async def test_refuses_a_request_beyond_limits_and_closes(request_bytes, status, words):
    client = Conversation()
    await client.send(request_bytes + POST)
    assert client.statuses == [status]
    assert words in client.sentence
    assert client.answers[0][1]["connection"] == "close"
    assert client.transport.ended and not client.transport.closed, "the client may still read"
    await client.send(POST)
    assert client.application.requests == []
    await client.wait(2.1)
    assert client.transport.aborted


@run
async def test_refuses_a_header_that_never_ends_in_pieces_too():
    client = Conversation()
    await client.send(b"GET / HTTP/1.1\r\na: ", *(b"x" * 100 for _ in range(19)))
    assert client.statuses == []
    await client.send(b"x" * 300)
    assert client.statuses == [431]


UPGRADE_HEADERS = (
    b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
    b"http2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
)
"""As Java's HttpClient has it in every first request."""
SIZED = b"POST /a HTTP/1.1\r\n" + UPGRADE_HEADERS + b"content-length: 3\r\n\r\n"
OLD_SIZED = SIZED.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Upgrade,", b"Upgrade, keep-alive,")
IN_CHUNKS = b"POST /a HTTP/1.1\r\n" + UPGRADE_HEADERS + b"transfer-encoding: chunked\r\n\r\n"
CHUNKS = b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        (SIZED + b"abc",),
        (SIZED, b"abc"),
        (SIZED, b"a", b"bc"),
        tuple(bytes([byte]) for byte in SIZED + b"abc"),
        (IN_CHUNKS + CHUNKS,),
        (IN_CHUNKS, *(bytes([byte]) for byte in CHUNKS)),
        (OLD_SIZED + b"abc",),
    ],
)
@run
async def test_body_behind_an_upgrade_belongs_to_the_request_and_the_connection_stays(pieces):
    client = Conversation()
    await client.send(*pieces)
    await client.send(POST)
    assert (client.statuses, client.bodies) == ([200] * 2, [b"POST/a:abc"] * 2)
    assert not client.transport.closed
    headers = client.application.requests[0].headers
    assert b"upgrade" not in headers
    assert headers[b"http2-settings"] == b"AAMAAABkAARAAAAAAAIAAAAA"


@run
async def test_upgrades_may_follow_each_other_in_one_piece():
    client = Conversation()
    upgrade = b"GET /%d HTTP/1.1\r\nconnection: upgrade\r\nupgrade: a\r\n\r\n"
    many = b"".join(upgrade % number for number in range(300))
    await client.send(many + SIZED + b"abc" + GET % 300)
    for _ in range(302):
        await settle()
    first = [b"GET/%d:" % number for number in range(300)]
    assert client.bodies == [*first, b"POST/a:abc", b"GET/300:"]


@pytest.mark.parametrize(
    ("request_bytes", "status", "words"),
    [
        (SIZED.replace(b": 3", b": 1001"), 413, "more than 1000 bytes"),
        (IN_CHUNKS.replace(b": chunked", b": gzip, chunked"), 400, "must be chunked alone"),
        (IN_CHUNKS + b"x", 400, "Invalid character in chunk size"),
        (SIZED + b"abcnonsense\r\n", 400, "Invalid method"),
    ],
)
@run
async def test_refuses_behind_an_upgrade_what_is_refused_elsewhere(request_bytes, status, words):
    client = Conversation()
    await client.send(request_bytes)
    assert client.statuses[-1] == status
    assert words in client.sentence
    assert client.transport.ended
