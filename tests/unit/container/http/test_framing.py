"""What is not a request within limits is refused in one sentence, and nothing after it is read."""

from __future__ import annotations

import pytest

from tests.unit.container.http.conversation import CHUNKED, POST, Conversation, run, statuses


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
