"""Connections to the engine, whose answers are given byte for byte."""

from __future__ import annotations

import asyncio

import pytest

from container.server.types import DeadlinePassed, Response
from container.server.upstream import Upstream, UpstreamGone, UpstreamRequest
from tests.unit.vllm_server.fronts import until

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
REQUEST = UpstreamRequest("POST", "/v1/completions", b"{}", "application/json")
WHOLE = HEAD + b"Content-Length: 3\r\n\r\nall"


def run(play, *answers, close=False):
    """Play against an engine that gives each request of a connection the next of its answers."""

    async def inner():
        requests = []

        async def serve(reader, writer):
            requests.append([])
            try:
                for parts in answers:
                    head = await reader.readuntil(b"\r\n\r\n")
                    size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                    requests[-1].append((head, await reader.readexactly(int(size or 0))))
                    for part in parts:
                        writer.write(part)
                        await writer.drain()
                        await asyncio.sleep(0.005)
                if not close:
                    await reader.read()
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            engine = Upstream(server.sockets[0].getsockname()[1], "The engine")
            try:
                return await play(engine), requests
            finally:
                engine.close()

    return asyncio.run(inner())


def ask(engine, seconds=5):
    return engine.request(REQUEST, seconds)


def test_an_answer_has_status_type_and_body_and_its_connection_is_used_again():
    async def play(engine):
        return [await ask(engine), await ask(engine)]

    answers, (requests,) = run(play, [WHOLE], [WHOLE.replace(b"200 OK", b"400 Bad Request")])
    assert answers == [Response(200, b"all", "text/plain"), Response(400, b"all", "text/plain")]
    head, body = requests[0]
    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\nHost: 127") and body == b"{}"


def test_pieces_that_came_meanwhile_are_read_at_once_wherever_they_were_split():
    stream = CHUNKED + b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"

    async def play(engine):
        answer = await engine.send(REQUEST)
        await answer.begin()
        await until(lambda: answer._is_whole)
        pieces = [await answer.read(), await answer.read()]
        answer.release()
        return pieces

    for cut in (10, len(CHUNKED) - 1, *range(len(CHUNKED), len(stream), 3)):
        pieces, _ = run(play, [stream[:cut], stream[cut:]])
        assert pieces == [b"abcde", b""]


def test_an_answer_that_is_given_back_before_its_end_closes_the_connection():
    async def play(engine):
        for _ in range(2):
            answer = await engine.send(REQUEST)
            await answer.begin()
            answer.release()

    assert len(run(play, [CHUNKED])[1]) == 2


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200", CHUNKED + b"5\r\nab", CHUNKED + b"x\r\nab", b"\x00\x01\r\n\r\n"],
)
def test_refuses_an_answer_that_is_not_whole_or_no_http(answer):
    async def play(engine):
        with pytest.raises(UpstreamGone):
            await ask(engine)

    run(play, [answer], close=True)


def test_refuses_an_engine_that_does_not_listen_or_answers_too_late():
    async def play(engine):
        with pytest.raises(DeadlinePassed, match=r"within 0\.1 seconds"):
            await ask(engine, 0.1)

    run(play, [])

    async def alone():
        with pytest.raises(UpstreamGone, match="does not answer"):
            await ask(Upstream(1, "The engine"))

    asyncio.run(alone())
