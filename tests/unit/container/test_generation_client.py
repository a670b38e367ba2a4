"""Streams of text generators: no broken one passes for a whole one, wherever it is split."""

from __future__ import annotations

import json

import pytest

from container.generation_client import (
    GenerationClient,
    StreamBroken,
    Usage,
    chat_request,
    payload_parts,
    read_answer,
    read_completion,
    read_events,
)


def data(document):
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n".encode()


def chunk(text=None, reason=None, *, index=0, calls=None, **more):
    delta = {key: value for key, value in (("content", text), ("tool_calls", calls)) if value}
    return data({"choices": [{"index": index, "delta": delta, "finish_reason": reason}], **more})


USAGE = data({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
DONE = b"data: [DONE]\n\n"
PARTS = (chunk("Par"), chunk("is é猫"), chunk(None, "stop"), USAGE, DONE)
STREAM = b"".join(PARTS)


def break_sentence(*chunks):
    with pytest.raises(StreamBroken) as fault:
        list(read_events(chunks))
    return str(fault.value)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_stream_reads_the_same_wherever_it_is_split(newline):
    stream = STREAM.replace(b"\n", newline)
    for cut in range(len(stream) + 1):
        answer = read_answer(read_events([stream[:cut], stream[cut:]]))
        assert (answer.text, answer.finish_reason) == ("Paris é猫", "stop")
        assert answer.usage == Usage(prompt_tokens=7, completion_tokens=3)
    single = read_answer(read_events(stream[at : at + 1] for at in range(len(stream))))
    assert single.text == "Paris é猫"


def test_a_stream_that_is_cut_anywhere_is_never_whole():
    for cut in range(len(STREAM) - len(b"\n\n")):
        assert break_sentence(STREAM[:cut])


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [
        (chunk("a") + data({"error": {"message": "engine died", "code": 500}}) + DONE,
         "The stream broke off: engine died"),
        (chunk("a") + data({"object": "error", "message": "old"}) + DONE, "broke off: old"),
        (chunk("a", "stop"), "ended without [DONE]"),
        (chunk("a") + DONE, "not why its answer ended"),
        (DONE, "not why its answer ended"),
        (b"", "ended without [DONE]"),
        (chunk("a", "abort") + DONE, "gave the answer up (abort)"),
        (chunk("a", "stop") + chunk("b", index=1) + DONE, "not why its answer ended"),
        (b"data: {]\n\n" + DONE, "is not JSON"),
        (data({"choices": 5}) + DONE, "choices is '5', no list"),
        (data({"choices": ["x"]}) + DONE, "part of choices is 'x', no dict"),
        (chunk("a", index=[]) + DONE, "index is '[]', no int"),
        (chunk("a", ["stop"]) + DONE, "finish_reason is \"['stop']\", no str"),
        (chunk(7) + DONE, "content is '7', no str"),
        (data({"choices": [{"delta": []}]}) + DONE, "delta is '[]', no dict"),
        (chunk(calls=["x"]) + DONE, "part of tool_calls is 'x', no dict"),
        (chunk(calls=[{"index": True}]) + DONE, "index is 'True', no int"),
        (chunk(calls=[{"function": "f"}]) + DONE, "function is 'f', no dict"),
        (data({"usage": {"prompt_tokens": "many"}}) + DONE, "prompt_tokens is 'many', no int"),
        (data({"usage": 3}) + DONE, "usage is '3', no dict"),
        (b"data: 7\n\n" + DONE, "no object"),
        (b'{"error": {"message": "x"}}\n', "is no event"),
        (b"<html>proxy</html>", "is no event"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_refuses(stream, sentence):
    assert sentence in break_sentence(stream)


def test_null_is_read_as_an_absent_key():
    call = {"index": None, "id": None, "function": {"name": "time", "arguments": None}}
    choice = {"index": None, "text": None, "message": None, "delta": {"tool_calls": [call]}}
    usage = {"prompt_tokens": None}
    event = data({"choices": [{**choice, "finish_reason": "stop"}], "usage": usage})
    answer = read_answer(read_events([event, DONE]))
    assert [(part.index, part.name) for part in answer.tool_calls] == [(0, "time")]
    assert (answer.text, answer.usage) == ("", Usage(prompt_tokens=0, completion_tokens=0))
    with pytest.raises(StreamBroken, match="usage is"):
        read_completion(b'{"choices": [{"text": "a", "finish_reason": "stop"}], "usage": []}')


def test_a_lost_connection_breaks_the_stream_after_its_events():
    def chunks():
        yield chunk("Par")
        raise ConnectionResetError("peer went away")

    events = read_events(chunks())
    assert next(events).text == "Par"
    with pytest.raises(StreamBroken, match="The connection was lost: peer went away"):
        next(events)


def test_calls_of_tools_are_put_together():
    first = {"index": 0, "id": "c1", "function": {"name": "weather", "arguments": ""}}
    second = {"index": 0, "function": {"arguments": '{"city":'}}
    third = {"index": 0, "function": {"arguments": '"Paris"}'}}
    other = {"index": 1, "id": "c2", "function": {"name": "time", "arguments": "{}"}}
    stream = b"".join(chunk(calls=[call]) for call in (first, second, third, other))
    answer = read_answer(read_events([stream + chunk(None, "tool_calls") + DONE]))
    assert [(call.id, call.name, call.arguments) for call in answer.tool_calls] == [
        ("c1", "weather", '{"city":"Paris"}'),
        ("c2", "time", "{}"),
    ]
    assert (answer.text, answer.finish_reason) == ("", "tool_calls")


def test_completions_are_read_as_chats_are():
    rows = [{"index": 0, "text": "Paris", "finish_reason": "length"}]
    assert read_answer(read_events([data({"choices": rows}), DONE])).text == "Paris"
    whole = {"choices": rows, "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    assert read_completion(json.dumps(whole).encode()).finish_reason == "length"
    with pytest.raises(StreamBroken):
        read_completion(b'{"choices": [{"text": "Par"}]}')
    with pytest.raises(StreamBroken, match="no model"):
        read_completion(b'{"error": {"message": "no model"}}')


def test_a_whole_answer_has_every_answer_of_its_request_and_each_ends_with_a_reason():
    rows = [{"index": index, "text": "a", "finish_reason": "stop"} for index in range(2)]
    assert read_completion(json.dumps({"choices": rows}).encode(), answers=2).text == "a"
    for broken in (rows[:1], [rows[0], {**rows[1], "finish_reason": "abort"}], []):
        with pytest.raises(StreamBroken, match="Not every answer says why it ended"):
            read_completion(json.dumps({"choices": broken}).encode(), answers=2)


class Runtime:
    """boto3's client, with one answer."""

    def __init__(self, *members):
        self.members, self.arguments = members, None

    def invoke_endpoint_with_response_stream(self, **arguments):
        self.arguments = arguments
        return {"Body": iter(self.members)}


def test_every_answer_that_a_request_asks_for_must_end():
    first, second = chunk("a", "stop"), chunk("b", "stop", index=1)
    for count, stream in ((1, first), (None, first), (2, first + second)):
        client = GenerationClient(
            runtime=Runtime({"PayloadPart": {"Bytes": stream + DONE}}), endpoint="dev-chat"
        )
        assert len(list(client.stream(chat_request("Hi", n=count)))) == stream.count(b"data: ")
    client = GenerationClient(
        runtime=Runtime({"PayloadPart": {"Bytes": first + DONE}}), endpoint="dev-chat"
    )
    with pytest.raises(StreamBroken, match="not why its answer ended"):
        list(client.stream(chat_request("Hi", n=2)))


def test_sagemakers_errors_break_the_stream():
    fault = {"ErrorCode": "StreamBroken", "Message": "the container ended"}
    members = [{"PayloadPart": {"Bytes": PARTS[0]}}, {"ModelStreamError": fault}]
    with pytest.raises(StreamBroken, match=r"ModelStreamError StreamBroken\): the container"):
        list(read_events(payload_parts(members)))
    with pytest.raises(StreamBroken, match="without"):
        list(read_events(payload_parts(members[:1])))
