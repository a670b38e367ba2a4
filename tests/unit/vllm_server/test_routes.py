"""Paths, refusals and bounds of requests and connections, on real sockets."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.unit.vllm_server.fronts import completion, run, until

ADAPTER, CUSTOM = "X-Amzn-SageMaker-Adapter-Identifier", "X-Amzn-SageMaker-Custom-Attributes"


def error_of(body):
    return json.loads(body)["error"]


def test_a_request_reaches_the_engine_written_again_and_without_its_headers():
    async def play(front):
        headers = {"X-Request-Id": "1", "Authorization": "Bearer secret"}
        answer = await front.ask("/invocations", completion(model=""), headers=headers)
        return answer, front.program.requests

    (status, body, answered), [(path, document, headers)] = run(play)
    assert (status, json.loads(body)["choices"]) == (200, [{"text": "all"}])
    assert (path, document["model"]) == ("/v1/completions", "chat")
    assert not {"X-Request-Id", "Authorization"} & headers.keys()
    assert answered["Content-Type"] == "application/json; charset=utf-8"


def test_ping_is_healthy_once_the_engine_is_warm():
    async def play(front):
        front.routes.not_ready = "starting"
        before = (await front.ask("/ping", method="GET"))[0]
        front.routes.not_ready = ""
        after = (await front.ask("/ping", method="GET"))[0]
        front.program.ping = 503
        return before, after, (await front.ask("/ping", method="POST"))[0]

    assert run(play) == (503, 200, 503)


REFUSED = [
    ("/adapters", "POST", {}, 404),
    ("/v1/load_lora_adapter", "POST", {}, 404),
    ("/tokenize", "POST", {}, 404),
    ("/invocations/../adapters", "POST", {}, 404),
    ("/invocations", "GET", {}, 405),
    ("/v1/models", "DELETE", {}, 405),
    ("/invocations", "POST", {"Content-Type": "text/plain"}, 400),
    ("/invocations", "POST", {"Content-Encoding": "gzip"}, 415),
    ("/invocations", "POST", {CUSTOM: "Route = /adapters"}, 400),
    ("/invocations", "POST", {"X-Amzn-SageMaker-Session-Id": "NEW_SESSION"}, 400),
    ("/invocations", "POST", {ADAPTER: "a1"}, 404),
]


def test_refuses_other_paths_methods_and_headers_before_the_engine():
    async def play(front):
        answers = [
            await front.ask(path, completion(), method=method, headers=headers)
            for path, method, headers, _ in REFUSED
        ]
        return answers, front.program.requests

    answers, requests = run(play)
    assert [status for status, _, _ in answers] == [row[3] for row in REFUSED]
    assert requests == [] and all(error_of(body)["code"] for _, body, _ in answers)


def test_the_engines_refusals_come_back_as_they_are():
    async def play(front):
        plain = await front.ask("/invocations", completion({"status": 400}))
        streamed = await front.ask("/invocations", completion({"status": 503}, stream=True))
        return plain[0], streamed[0], streamed[2].get("Retry-After")

    assert run(play) == (400, 503, "1")


def test_refuses_in_openais_shape_what_the_http_server_refuses():
    async def play(front):
        large = await front.ask("/invocations", data=b" " * 2000)
        held = await connect(front)
        held[1].write(HEAD + b"Content-Length: 900\r\n\r\n" + b" " * 800)
        await until(lambda: front.server._group.held_bytes == 800)
        full = await front.ask("/invocations", data=b" " * 900)
        held[1].transport.abort()
        await until(lambda: front.server._group.held_bytes == 0)
        after = await front.ask("/invocations", data=b" " * 900)
        refusals = await front.metric('roundhouse_front_rejections_total{reason="memory"}')
        return [
            (status, error_of(body)["type"]) for status, body, _ in (large, full, after)
        ], refusals

    limits = {"body_bytes": 1000, "held_bytes": 1000}
    answers, refusals = run(play, http_limits=limits)
    assert [status for status, _ in answers] == [413, 503, 400] and refusals == 1
    assert answers[1][1] == "ServiceUnavailableError"


def test_refuses_at_once_what_the_engine_cannot_take():
    async def play(front):
        order = completion({"pause": 0.3, "events": 2}, stream=True)
        held = [asyncio.create_task(front.ask("/invocations", order)) for _ in range(8)]
        await until(lambda: front.program.running == 8)
        begin = time.monotonic()
        status, body, headers = await front.ask("/invocations", completion())
        seconds = time.monotonic() - begin
        ends = [(await task)[1][-14:] for task in held]
        after = (await front.ask("/invocations", completion()))[0]
        refusals = await front.metric('roundhouse_front_rejections_total{reason="queue"}')
        return (status, error_of(body), headers["Retry-After"]), seconds, ends, after, refusals

    (status, error, retry), seconds, ends, after, refusals = run(play)
    assert (status, error["type"], retry) == (503, "ServiceUnavailableError", "1")
    assert "8 of 8 answers are under way" in error["message"]
    assert seconds < 0.3 and ends == [b"data: [DONE]\n\n"] * 8 and (after, refusals) == (200, 1)


def test_an_adapter_whose_caller_left_is_known_once_it_is_loaded():
    async def play(front):
        loading = asyncio.create_task(front.ask("/adapters", {"name": "a1", "pause": 0.3}))
        await until(lambda: front.program.loading == 1)
        loading.cancel()
        await until(lambda: front.program.adapters == ["a1"])
        await asyncio.sleep(0.1)
        return (await front.ask("/invocations", completion(model="a1")))[0]

    assert run(play, adapters=True) == 200


def test_an_adapter_is_loaded_while_no_more_answers_may_begin():
    async def play(front):
        busy = asyncio.create_task(front.ask("/invocations", completion({"pause": 0.5}, n=8)))
        await until(lambda: front.program.running == 1)
        refused = (await front.ask("/invocations", completion()))[0]
        loaded = (await front.ask("/adapters", {"name": "a1", "src": "/x"}))[0]
        return refused, loaded, (await busy)[0]

    assert run(play, adapters=True) == (503, 200, 200)


def test_an_adapter_that_is_loaded_again_reads_nothing_that_was_cached_before():
    async def play(front):
        salts = []
        for _ in range(3):
            await front.ask("/adapters", {"name": "a1", "src": "/x"})
            for own in (None, "mine"):
                await front.ask("/invocations", completion(model="a1", cache_salt=own))
                salts.append(front.program.requests[-1][1]["cache_salt"])
            await front.ask("/adapters/a1", method="DELETE")
        await front.ask("/invocations", completion(model="chat"))
        return salts, "cache_salt" in front.program.requests[-1][1]

    salts = [None, "mine", "2:", "2:mine", "3:", "3:mine"]
    assert run(play, adapters=True) == (salts, False)


def test_a_fault_of_ours_shows_no_values():
    async def play(front):
        front.routes._engine = None
        status, body, _ = await front.ask("/invocations", completion())
        found, front.log[:] = list(front.log), []
        return status, error_of(body)["message"], found

    status, message, faults = run(play)
    assert (status, faults) == (500, [AttributeError]) and "NoneType" not in message


HEAD = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


async def connect(front):
    return await asyncio.open_connection("127.0.0.1", front.port)


def request(order, **more):
    body = json.dumps(completion(order, **more)).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_a_stream_that_lasts_longer_than_the_idle_time_goes_on():
    text = run(
        lambda front: front.stream({"events": 4, "pause": 0.1}), http_limits={"idle_seconds": 0.1}
    )
    assert text.count("é") == 4 and text.endswith("data: [DONE]\n\n")


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

    sent = run(play, http_limits={"unread_seconds": 0.3})
    assert not streams or 0 < sent < 600
