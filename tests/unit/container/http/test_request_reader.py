"""What is not a request within limits is refused in one sentence, and nothing after it is read."""

from __future__ import annotations

import pytest

from tests.unit.container.http.conversation import (
    CHUNKED,
    GET,
    POST,
    Conversation,
    run,
    settle,
    statuses,
)


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
        (b"GET /" + b"x" * 3000 + b" HTTP/1.1\r\n\r\n", 431, "more than 2000 bytes"),
        (b"GET / HTTP/1.1\r\na: " + b"x" * 3000 + b"\r\n\r\n", 431, "more than 2000 bytes"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 400, 431, "more than 2000 bytes"),
        (CHUNKED + b"0\r\n" + b"a: b\r\n" * 400, 431, "more than 2000 bytes"),
        (b"POST / HTTP/1.1\r\ncontent-length: 1001\r\n\r\n", 413, "more than 1000 bytes"),
        (
            b"POST / HTTP/1.1\r\ncontent-length: 18446744073709551615\r\n\r\n",
            413,
            "more than 1000 bytes",
        ),
        (CHUNKED + b"3e9\r\n" + b"x" * 1001, 413, "more than 1000 bytes"),
        (
            b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
            400,
            "Invalid character in Content-Length",
        ),
        (
            b"POST / HTTP/1.1\r\ncontent-length: 3, 3\r\n\r\nabc",
            400,
            "Invalid character in Content-Length",
        ),
        (
            b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
            400,
            "Duplicate Content-Length",
        ),
        (
            b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "can't be present with",
        ),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
            400,
            "can't be present with",
        ),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            400,
            "must be chunked alone",
        ),
        (b"GET / HTTP/1.1\r\nhost: a\r\nHost: a\r\n\r\n", 400, "several Host headers"),
        (CHUNKED + b"-1\r\n", 400, "Invalid character in chunk size"),
        (CHUNKED + b"fffffffffffffffff\r\n", 400, "Chunk size overflow"),
        (CHUNKED + b"1\r\nabc\r\n", 400, "Expected LF after chunk data"),
    ],
)
def test_refuses_what_is_not_a_request_within_limits_and_closes(request_bytes, status, words):
    @run
    async def scenario():
        talk = Conversation()
        await talk.send(request_bytes + POST)
        assert statuses(talk) == [status]
        assert words in talk.sentence
        assert talk.answers[0][1]["connection"] == "close"
        assert talk.wire.ended and not talk.wire.closed, "the client may still read its answer"
        await talk.send(POST)
        assert talk.office.asked == []
        await talk.wait(2.1)
        assert talk.wire.aborted

    scenario()


@run
async def test_refuses_a_header_that_never_ends_however_it_comes():
    talk = Conversation()
    await talk.send(b"GET / HTTP/1.1\r\na: ", *(b"x" * 100 for _ in range(19)))
    assert statuses(talk) == []
    await talk.send(b"x" * 300)
    assert statuses(talk) == [431]


UPGRADE_HEADERS = (
    b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
    b"http2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
)
"""As Java's HttpClient has it in every first request."""
SIZED = b"POST /a HTTP/1.1\r\n" + UPGRADE_HEADERS + b"content-length: 3\r\n\r\n"
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
        (
            SIZED.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Upgrade,", b"Upgrade, keep-alive,")
            + b"abc",
        ),
    ],
)
def test_body_behind_an_asked_upgrade_belongs_to_the_request_and_the_connection_stays(pieces):
    @run
    async def scenario():
        talk = Conversation()
        await talk.send(*pieces)
        await talk.send(POST)
        assert [(status, body) for status, _, body in talk.answers] == [(200, b"POST/a:abc")] * 2
        assert not talk.wire.closed
        first, _ = talk.office.asked
        assert (
            b"upgrade" not in first.headers
            and first.headers[b"http2-settings"] == b"AAMAAABkAARAAAAAAAIAAAAA"
        )

    scenario()


@run
async def test_asked_upgrades_may_follow_each_other_in_one_piece():
    talk = Conversation()
    many = b"".join(
        b"GET /%d HTTP/1.1\r\nconnection: upgrade\r\nupgrade: a\r\n\r\n" % number
        for number in range(300)
    )
    await talk.send(many + SIZED + b"abc" + GET % 300)
    for _ in range(302):
        await settle()
    assert [body for _, _, body in talk.answers] == [
        *(b"GET/%d:" % number for number in range(300)),
        b"POST/a:abc",
        b"GET/300:",
    ]


@run
async def test_expected_continue_of_an_asked_upgrade_is_sent_once():
    talk = Conversation()
    await talk.send(
        SIZED.replace(b"content-length", b"expect: 100-continue\r\ncontent-length"), b"abc"
    )
    assert statuses(talk) == [100, 200]


@pytest.mark.parametrize(
    ("request_bytes", "status", "words"),
    [
        (SIZED.replace(b": 3", b": 1001"), 413, "more than 1000 bytes"),
        (
            SIZED.replace(b"content-length: 3", b"transfer-encoding: gzip, chunked"),
            400,
            "must be chunked alone",
        ),
        (IN_CHUNKS + b"x", 400, "Invalid character in chunk size"),
        (SIZED + b"abcnonsense\r\n", 400, "Invalid method"),
    ],
)
def test_refuses_behind_an_asked_upgrade_what_is_refused_elsewhere(request_bytes, status, words):
    @run
    async def scenario():
        talk = Conversation()
        await talk.send(request_bytes)
        assert statuses(talk)[-1] == status
        assert words in talk.sentence
        assert talk.wire.ended

    scenario()


@run
async def test_refuses_a_body_behind_an_asked_upgrade_that_does_not_come():
    talk = Conversation()
    await talk.send(SIZED, b"a")
    await talk.wait(30.5)
    assert statuses(talk) == [408]
