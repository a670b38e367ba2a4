"""Streams: tokens counted at their moments, and nothing broken taken for whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.generation_client import StreamBroken
from roundhouse.measure.streams import EventStream, StreamReader
from tests.unit.roundhouse.measure.streams import (
    ROLE,
    chat_chunk,
    event,
    frame,
    stream,
    text_chunk,
    usage,
    whole,
)


def read(*parts: bytes, unframe=None):
    """Read parts that arrive at 1 s, 2 s, ..."""
    reader = StreamReader() if unframe is None else StreamReader(unframe=unframe)
    for moment, part in enumerate(parts, 1):
        reader.read(part, float(moment))
    return reader.end()


def test_role_of_a_chat_is_no_token_and_the_last_chunk_is_one():
    last = chat_chunk("", last=True)
    times = read(event(ROLE), event(chat_chunk()), event(last), stream(usage(7, 2), "[DONE]"))
    assert list(times.chunks) == [2.0, 3.0]
    assert (times.prompt_tokens, times.output_tokens, list(times.gaps)) == (7, 2, [1.0])


def test_chunk_without_text_is_a_token_of_part_of_a_character():
    times = read(
        event(text_chunk("")), event(text_chunk("é", last=True)), stream(usage(), "[DONE]")
    )
    assert list(times.chunks) == [1.0, 2.0]


def test_chunk_counts_when_its_line_is_whole():
    first, second = event(chat_chunk(last=True))[:20], event(chat_chunk(last=True))[20:]
    times = read(first, second, stream(usage(), "[DONE]"))
    assert list(times.chunks) == [2.0]


@given(st.lists(st.integers(1, 400), max_size=12), st.booleans())
def test_any_split_of_the_bytes_gives_the_same_answer(cuts, is_framed):
    data = stream(ROLE, chat_chunk("zwölf 🙂"), chat_chunk("b", last=True), usage(5, 2), "[DONE]")
    if is_framed:
        data = b"".join(frame(data[place : place + 7]) for place in range(0, len(data), 7))
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    parts = [data[begin:end] for begin, end in pairwise(places)]
    times = read(*parts, unframe=EventStream() if is_framed else None)
    assert (len(times.chunks), times.prompt_tokens, times.output_tokens) == (2, 5, 2)


ERROR = {"error": {"message": "engine is gone", "type": "x"}}
LAST = chat_chunk(last=True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (stream(LAST, usage()), r"without \[DONE\]"),
        (stream(chat_chunk(), usage(), "[DONE]"), "not why its answer ended"),
        (stream(chat_chunk(), ERROR, "[DONE]"), "engine is gone"),
        (stream(chat_chunk(), "{", "[DONE]"), "not JSON"),
        (stream(LAST, "[DONE]"), "no usage"),
        (b"data: \xff\xfe\n\n", "not UTF-8"),
    ],
)
def test_refuses_a_broken_stream(data, reason):
    with pytest.raises(StreamBroken, match=reason):
        read(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            frame(
                b'{"Message": "late"}', message_type="exception", exception_type="ModelStreamError"
            ),
            "ModelStreamError.*late",
        ),
        (frame(b"x", message_type="error", error_code="InternalStreamFailure"), "InternalStream"),
        (frame(whole())[:-1] + b"\x00", "event stream is damaged"),
        (frame(whole())[:-5], r"without \[DONE\]"),
    ],
)
def test_refuses_a_broken_event_stream(data, reason):
    with pytest.raises(StreamBroken, match=reason):
        read(data, unframe=EventStream())
