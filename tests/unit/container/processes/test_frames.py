"""Frames as both ends read them, however a socket cuts them."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.server.engines.tokens import Tokens
from container.server.processes import frames
from container.server.processes.frames import FrameSplitter, InvalidFrame
from container.server.types import DeadlinePassed, EngineRefused, QueueFull, Unavailable

ids = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9)
rows = st.lists(st.tuples(ids, st.booleans()), min_size=1, max_size=5)


def tokens(values: list[int], typed: bool) -> Tokens:
    ids = np.array(values, np.int32)
    return Tokens(ids, ids[::-1].copy() if typed else None)


def one(data: bytes) -> frames.Frame:
    (frame,) = FrameSplitter().split(data)
    return frame


def same(one: Tokens, other: Tokens) -> bool:
    blank = np.zeros(len(one), np.int32)
    types = [blank if row.type_ids is None else row.type_ids for row in (one, other)]
    return np.array_equal(one.ids, other.ids) and np.array_equal(*types)


@given(rows, st.integers(0, 2**64 - 1), st.floats(0, 100))
def test_tokens_arrive_as_they_left(given_rows, identity, seconds):
    sent = [tokens(*row) for row in given_rows]
    frame = one(frames.request_frame(identity, sent, seconds))
    header = (frame.kind, frame.id, frame.number, frame.rows)
    assert header == (frames.TOKENS, identity, seconds, len(sent))
    assert all(same(*pair) for pair in zip(frames.request_rows(frame), sent, strict=True))


@pytest.mark.parametrize("dtype", ["?", "<i1", "<i8", "<u2", "<f2", "<f4", "<f8"])
def test_tensors_arrive_as_they_left(dtype):
    signal = (np.arange(30).reshape(5, 2, 3) % 2).astype(dtype)
    gain = np.arange(5, dtype=np.int64)
    sent = list(zip(signal, gain, strict=True))
    got = frames.request_rows(one(frames.request_frame(7, sent, 1.0)))
    for row, other in zip(got, sent, strict=True):
        assert [array.dtype for array in row] == [np.dtype(dtype), np.dtype(np.int64)]
        assert all(np.array_equal(*pair) for pair in zip(row, other, strict=True))


@pytest.mark.parametrize("shape", [(1, 3), (0, 3), (2,), (3, 1, 5), (2, 0)])
def test_answers_arrive_as_they_left(shape):
    floats = np.random.default_rng(0).random(shape, np.float32)
    arrays = (floats, np.ones((shape[0], 1), np.bool_), np.ones((shape[0], 4))[:, ::2])
    frame = one(frames.response_frame(9, arrays, 12))
    assert (frame.kind, frame.id, frame.number) == (frames.ANSWER, 9, 12)
    for got, sent in zip(frames.arrays_of(frame), arrays, strict=True):
        assert got.dtype == sent.dtype and got.shape == sent.shape and np.array_equal(got, sent)


def test_arrays_are_views_of_what_came_and_aligned():
    data = frames.response_frame(1, (np.ones((1, 3), np.float32), np.ones((1, 3), np.float64)), 0)
    for array in frames.arrays_of(one(data)):
        assert array.base is not None and not array.flags.writeable and array.flags.aligned


@given(
    st.lists(st.integers(0, 300), max_size=12),
    st.lists(st.integers(1, 90), min_size=1, max_size=20),
)
def test_frames_are_whole_however_they_are_cut(sizes, cuts):
    stream = b"".join(
        frames.snapshot_frame(number, b"x" * size) for number, size in enumerate(sizes)
    )
    splitter, received, begin = FrameSplitter(), [], 0
    for cut in cycle(cuts):
        if begin >= len(stream):
            break
        received += splitter.split(stream[begin : begin + cut])
        begin += cut
    texts = [(frame.id, len(frames.text_of(frame))) for frame in received]
    assert texts == list(enumerate(sizes))


@pytest.mark.parametrize(
    "fault", [QueueFull("full"), DeadlinePassed("späť"), EngineRefused(""), Unavailable("a\nb")]
)
def test_faults_keep_class_and_sentence(fault):
    got = frames.fault_of(one(frames.fault_frame(3, fault)))
    assert (type(got), str(got)) == (type(fault), str(fault))


def test_unknown_fault_is_unavailable():
    data = frames.fault_frame(3, QueueFull("full")).replace(b"QueueFull", b"QueueFool")
    assert type(frames.fault_of(one(data))) is Unavailable


def test_signals_are_headers_alone():
    frame = one(frames.signal_frame(frames.STATE, detail=frames.DRAINING, identity=4, number=0.5))
    header = (frame.kind, frame.detail, frame.id, frame.number)
    assert header == (frames.STATE, frames.DRAINING, 4, 0.5)


@pytest.mark.parametrize("size", [0, 31, frames.MAX_FRAME_BYTES + 1])
def test_refuses_frames_of_impossible_size(size):
    data = frames.HEADER.pack(size, frames.STATE, 0, 0, 0, 0, 0.0)
    with pytest.raises(InvalidFrame, match=f"announces {size} bytes"):
        list(FrameSplitter().split(data))
