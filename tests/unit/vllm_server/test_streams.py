"""Streams to their end: whole, cut, left, or lost with the engine."""

from __future__ import annotations

import asyncio
import json

import pytest

from container.server.settings import Settings
from container.server.vllm.routes import TURNS
from tests.unit.vllm_server.fronts import completion, run, until

DONE = "data: [DONE]\n\n"


def last_error(text):
    *_, last, rest = text.split("\n\n")
    assert rest == ""
    return json.loads(last.removeprefix("data: "))["error"]["message"]


@pytest.mark.parametrize("end", ["error", "close"])
def test_a_stream_that_the_engine_breaks_ends_with_an_error_and_without_done(end):
    text = run(lambda front: front.stream({"events": 2, "end": end}))
    assert "[DONE]" not in text and text.count('"error"') == 1
    assert last_error(text) == (
        "engine died"
        if end == "error"
        else "The engine ended before the answer did; the answer is not whole."
    )


@pytest.mark.parametrize(
    ("streams", "order"), [(True, {"end": "hang"}), (True, {"begin": 60}), (False, {"pause": 60})]
)
def test_a_client_that_leaves_frees_its_place_in_the_engine(streams, order):
    async def play(front):
        task = asyncio.create_task(front.ask("/invocations", completion(order, stream=streams)))
        await until(lambda: front.program.running == 1)
        task.cancel()
        await until(lambda: front.program.running == 0)
        await until(lambda: front.routes.admission.sequences == 0)
        return front.program.left, len(front.routes.admission.flights)

    assert run(play) == (1, 0)


def test_requests_that_the_engine_begins_late_do_not_hold_the_others():
    async def play(front):
        orders = [{"begin": 1}] * (3 * TURNS)
        streams = [asyncio.create_task(front.stream(order)) for order in orders]
        await until(lambda: front.program.running == len(orders))
        return [await stream for stream in streams]

    assert all(text.endswith(DONE) for text in run(play, most_sequences=64))


def test_draining_waits_for_streams_and_refuses_the_rest():
    async def play(front):
        orders = [{"events": 4, "pause": 0.05 * number} for number in range(1, 9)]
        streams = [asyncio.create_task(front.stream(order)) for order in orders]
        await until(lambda: front.program.running == 8)
        drain = asyncio.create_task(front.routes.admission.drain(10, 1))
        await asyncio.sleep(0)
        refused = [
            (await front.ask("/ping", method="GET"))[0],
            (await front.ask("/invocations", completion()))[0],
        ]
        cut = await drain
        left = len(front.routes.admission.flights)
        return refused, [await task for task in streams], (cut, left)

    refused, texts, ends = run(play)
    assert (refused, ends) == ([503, 503], (0, 0))
    assert all(text.endswith(DONE) and text.count("é") == 4 for text in texts)


def test_what_drains_too_long_ends_with_an_error_and_without_done():
    async def play(front):
        stream = asyncio.create_task(front.stream({"events": 2, "end": "hang"}))
        whole = asyncio.create_task(front.ask("/invocations", completion({"pause": 60})))
        await until(lambda: front.program.running == 2)
        cut = await front.routes.admission.drain(0.2, 2)
        await until(lambda: front.program.running == 0)
        return (
            cut,
            await stream,
            (await whole)[:2],
            await front.metric("roundhouse_front_streams_cut_total"),
        )

    cut, text, (status, body), counted = run(play)
    assert (cut, status, counted) == (2, 503, 1)
    assert "[DONE]" not in text and "is being stopped" in last_error(text)
    assert "is being stopped" in json.loads(body)["error"]["message"]


def test_an_answer_that_is_not_streamed_ends_at_its_deadline():
    async def play(front):
        status, body, _ = await front.ask("/invocations", completion({"pause": 60}))
        await until(lambda: front.program.running == 0)
        return status, json.loads(body)["error"]["message"]

    status, message = run(play, settings=Settings(deadline_seconds=1))
    assert (status, message) == (503, "The engine did not answer within 1 seconds.")
