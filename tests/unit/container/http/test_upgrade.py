"""Upgrades that nobody here makes: the request is answered as if it had asked for none, body and
all.
"""

from __future__ import annotations

import pytest

from tests.unit.container.http.conversation import GET, POST, Conversation, run, settle, statuses

WISH = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
"""As Java's HttpClient has it in every first request."""
SIZED = b"POST /a HTTP/1.1\r\n" + WISH + b"content-length: 3\r\n\r\n"
IN_CHUNKS = b"POST /a HTTP/1.1\r\n" + WISH + b"transfer-encoding: chunked\r\n\r\n"
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
