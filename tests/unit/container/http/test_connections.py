"""Connections: what is answered, in which order, within which limits.

And that nothing is left behind.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref

import pytest

from container.server.http.messages import HttpLimits
from container.server.http.request_reader import RequestReader
from container.server.http.server import Connection, ConnectionGroup
from tests.unit.container.http.conversation import (
    CHUNKED,
    GET,
    LIMITS,
    POST,
    Conversation,
    Office,
    run,
    settle,
    statuses,
)


@run
async def test_request_is_answered_and_the_connection_stays():
    talk = Conversation()
    await talk.send(POST, POST)
    assert [(status, body) for status, _, body in talk.answers] == [(200, b"POST/a:abc")] * 2
    assert talk.answers[0][1] == {"content-type": "text/plain", "content-length": "10"}
    assert not talk.wire.closed


@run
async def test_request_may_come_byte_by_byte_and_in_chunks():
    talk = Conversation()
    await talk.send(*(bytes([byte]) for byte in POST))
    await talk.send(CHUNKED, b"1\r\na\r\n", b"2\r\nbc\r\n0\r\n", b"\r\n")
    assert [body for _, _, body in talk.answers] == [b"POST/a:abc"] * 2


def test_body_in_the_smallest_chunks_takes_little_more_than_its_size():
    body = b"ab" * 100_000
    reader = RequestReader(HttpLimits(body_bytes=len(body)), lambda: 0.0)
    reader.feed(CHUNKED)
    tracemalloc.start()
    for begin in range(0, len(body), 200):
        reader.feed(
            b"".join(
                b"2\r\n%b\r\n" % body[place : place + 2] for place in range(begin, begin + 200, 2)
            )
        )
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    reader.feed(b"0\r\n\r\n")
    assert type(reader.arrived[0].request.body) is bytes and reader.arrived[0].request.body == body
    assert held < 1.5 * len(body)


@run
async def test_headers_path_and_query_reach_the_answering():
    talk = Conversation()
    await talk.send(
        b"GET /m%C3%A9/x?a=1&b HTTP/1.1\r\nX-One: 1\r\nx-one: 2\r\n\r\n",
        b"GET http://host:80/p?q HTTP/1.1\r\n\r\n",
    )
    first, second = talk.office.asked
    assert (first.path, first.query, first.headers) == ("/mé/x", "a=1&b", {b"x-one": b"1, 2"})
    assert (second.path, second.query) == ("/p", "q")


@run
async def test_pipelined_requests_are_answered_in_order_one_at_a_time():
    talk = Conversation(shut=True)
    await talk.send(b"".join(GET % number for number in range(5)))
    assert [request.path for request in talk.office.asked] == ["/0"]
    talk.office.open.set()
    await settle()
    await settle()
    assert [body for _, _, body in talk.answers] == [b"GET/%d:" % number for number in range(5)]


@run
async def test_reading_stops_while_a_request_waits_and_goes_on_after():
    talk = Conversation(shut=True)
    await talk.send(GET % 1)
    assert talk.wire.reading
    await talk.send((GET % 2) * 1000)
    assert not talk.wire.reading
    assert len(talk.connection._reader.arrived) < 300, "a read of tiny requests is not parsed whole"
    talk.office.open.set()
    for _ in range(1100):
        await settle()
    assert talk.wire.reading
    assert statuses(talk) == [200] * 1001


@run
async def test_expected_continue_is_sent_once_and_only_when_it_is_waited_for():
    talk = Conversation()
    header = b"POST /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
    await talk.send(header, b"a", b"bc", header + b"abc")
    assert statuses(talk) == [100, 200, 200]


@run
async def test_expected_continue_waits_for_its_turn():
    talk = Conversation(shut=True)
    await talk.send(
        GET % 1, b"POST /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
    )
    assert statuses(talk) == []
    talk.office.open.set()
    await settle()
    assert statuses(talk) == [200, 100]
    await talk.send(b"abc")
    assert statuses(talk) == [200, 100, 200]


@run
async def test_connection_ends_as_the_client_asked():
    for request, header, closed in (
        (b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n", "close", True),
        (b"GET / HTTP/1.0\r\n\r\n", "close", True),
        (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", "keep-alive", False),
        (
            b"POST / HTTP/1.0\r\nconnection: keep-alive\r\ntransfer-encoding: "
            b"chunked\r\n\r\n0\r\n\r\n",
            "close",
            True,
        ),
        (b"CONNECT a:1 HTTP/1.1\r\n\r\n", "close", True),
    ):
        talk = Conversation()
        await talk.send(request)
        assert talk.answers[0][1]["connection"] == header
        assert talk.wire.closed is closed


@run
async def test_head_is_answered_without_a_body():
    talk = Conversation()
    await talk.send(b"HEAD /x HTTP/1.1\r\n\r\n")
    assert talk.wire.written.endswith(b"content-length: 7\r\n\r\n")


@run
async def test_fault_behind_a_request_is_told_after_its_answer():
    talk = Conversation(shut=True)
    await talk.send(POST + b"nonsense\r\n\r\n")
    assert statuses(talk) == []
    talk.office.open.set()
    await settle()
    assert statuses(talk) == [200, 400]


@run
async def test_refuses_a_request_that_does_not_arrive_in_time():
    talk = Conversation()
    await talk.send(POST[:-1])
    await talk.wait(29)
    assert statuses(talk) == []
    await talk.send(POST[-1:])
    assert statuses(talk) == [200]
    await talk.send(POST[:1])
    await talk.wait(31)
    assert statuses(talk) == [200, 408]
    assert "within 30 seconds" in talk.sentence


@run
async def test_answer_that_takes_long_is_not_the_clients_fault():
    talk = Conversation(shut=True)
    await talk.send(POST)
    await talk.wait(1000)
    talk.office.open.set()
    await settle()
    assert statuses(talk) == [200]


@run
async def test_idle_connection_is_closed():
    talk = Conversation()
    await talk.wait(74)
    await talk.send(POST)
    await talk.wait(74)
    assert not talk.wire.closed
    await talk.wait(2)
    assert talk.wire.closed and statuses(talk) == [200]


@run
async def test_client_that_does_not_read_gets_no_further_answer_and_is_closed():
    talk = Conversation()
    talk.connection.pause_writing()
    await talk.send(POST)
    assert talk.office.asked == []
    await talk.wait(29)
    talk.connection.resume_writing()
    await settle()
    assert statuses(talk) == [200]
    talk.connection.pause_writing()
    await talk.wait(31)
    assert talk.wire.aborted
    talk.connection.connection_lost(None)


@pytest.mark.parametrize("fault", [None, ConnectionResetError()])
def test_client_that_leaves_stops_its_work_at_once(fault):
    @run
    async def scenario():
        talk = Conversation(shut=True)
        await talk.send(POST + POST)
        if fault is None:
            talk.leave()
        else:
            talk.connection.connection_lost(fault)
        await settle()
        assert (talk.office.cancelled, len(talk.office.asked)) == (1, 1)
        assert talk.shared.connections == set() and talk.wire.written == b""

    scenario()


@run
async def test_work_that_is_cancelled_elsewhere_is_answered_503():
    async def cancelled(request):
        raise asyncio.CancelledError

    talk = Conversation(
        shared=ConnectionGroup(application=cancelled, limits=LIMITS, clock=lambda: 0.0)
    )
    await talk.send(POST)
    assert (statuses(talk), talk.sentence) == (
        [503],
        "The server stopped working on this request; try again.",
    )


@run
async def test_answering_that_fails_is_answered_500_and_told_to_the_loop():
    listed = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: listed.append(context["exception"])
    )
    talk = Conversation()
    talk.office.fault = ValueError("secret")
    await talk.send(POST, POST)
    gc.collect()
    assert statuses(talk) == [500, 500] and "secret" not in talk.sentence
    assert [str(fault) for fault in listed] == ["secret", "secret"]


@run
async def test_refuses_more_connections_than_it_takes():
    shared = ConnectionGroup(application=Office(), limits=LIMITS, clock=lambda: 0.0)
    talks = [Conversation(shared=shared) for _ in range(7)]
    assert [statuses(talk) for talk in talks] == [[]] * 3 + [[503]] * 4
    assert [talk.wire.aborted for talk in talks] == [False] * 6 + [True], (
        "even refusals that linger are counted"
    )
    talks[0].leave()
    for talk in talks[3:]:
        talk.leave()
    assert statuses(Conversation(shared=shared)) == []


@run
async def test_draining_closes_idle_connections_and_lets_others_end():
    idle, busy, sending = Conversation(), Conversation(shut=True), Conversation()
    await busy.send(POST)
    await sending.send(POST[:10])
    for talk in (idle, busy, sending):
        talk.shared.draining = True
        talk.connection.drain()
    assert [talk.wire.closed for talk in (idle, busy, sending)] == [True, False, False]
    busy.office.open.set()
    await settle()
    await sending.send(POST[10:])
    for talk in (busy, sending):
        assert talk.wire.closed and talk.answers[0][1]["connection"] == "close"


@run
async def test_connection_that_is_gone_is_freed_without_the_collector():
    gc.disable()
    try:
        talk = Conversation()
        await talk.send(POST, POST[:20])
        gone = weakref.ref(talk.connection._reader)
        talk.leave()
        del talk
        await settle()
        assert gone() is None
    finally:
        gc.enable()


def test_connection_is_a_protocol_without_a_dictionary():
    assert "_task" in Connection.__slots__
