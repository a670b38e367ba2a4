"""Frames of the IPC channel between HTTP worker and supervisor, and what its two ends share.

A frame is a header of 32 bytes, then arrays. It is a multiple of 8 bytes long, and so is every
array in it: both ends view arrays where they lie, without a copy. Numbers are in the machine's byte
order, for both ends are one machine.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from container.server import types
from container.server.engines.tokens import Tokens
from container.server.types import Array, Arrays, RequestFault, TooLarge, Unavailable

HEADER = struct.Struct("=IBBHIQd4x")
"""Bytes of the whole frame, kind, detail, parts, rows, id, number."""
TOKENS, TENSORS, CANCEL, ANSWER, FAULT, STATE, SNAPSHOT_WANTED, SNAPSHOT = range(1, 9)
LOADING, OPENING, READY, DRAINING, BROKEN = range(5)
"""Details of STATE: the supervisor's state, or the state that a worker acknowledges.

OPENING: requests are answered, but no worker is ready before every worker has acknowledged it.
"""
TYPED = 1
"""Detail of TOKENS: type ids follow the ids."""
MAX_FRAME_BYTES = 1 << 30
MAX_UNREAD_BYTES = 16 * 1024 * 1024
"""Frames that the other end has not read; with more of them, this end takes no further work."""
FAULTS = {
    name: fault
    for name, fault in vars(types).items()
    if isinstance(fault, type) and issubclass(fault, RequestFault)
}
_ARRAY = struct.Struct("=4sI")
_INT32 = np.dtype(np.int32)


class InvalidFrame(Exception):
    """Bytes that are no frame: the other end is another program, or another version."""


class Frame(NamedTuple):
    """A whole frame; its arrays lie in `data` from `begin` to `end`.

    `number` is seconds; in an answer, rows that wait.
    """

    kind: int
    detail: int
    parts: int
    rows: int
    id: int
    number: float
    data: bytes
    begin: int
    end: int


class FrameSplitter:
    """Splits a socket's bytes into frames."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0
        self._wanted = HEADER.size

    def split(self, data: bytes) -> Iterator[Frame]:
        """Return the frames that are whole now. Raises InvalidFrame."""
        if self._pieces:
            self._pieces.append(data)
            self._held += len(data)
            if self._held < self._wanted:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        begin, length, wanted = 0, len(data), HEADER.size
        while length - begin >= 32:
            size, kind, detail, parts, rows, identity, number = HEADER.unpack_from(data, begin)
            if not 32 <= size <= MAX_FRAME_BYTES:
                raise InvalidFrame(
                    f"A frame announces {size} bytes; 32 to {MAX_FRAME_BYTES} are right."
                )
            end = begin + size
            if end > length:
                wanted = size
                break
            yield Frame(kind, detail, parts, rows, identity, number, data, begin + 32, end)
            begin = end
        if begin < length:
            self._pieces.append(data[begin:])
            self._held, self._wanted = length - begin, wanted


class ChannelEnd(asyncio.Protocol):
    """One end of the channel; what it sends in a turn of the event loop leaves in one write."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = 0
        self._wanted: dict[int, asyncio.Future[bytes]] = {}
        self._frame_splitter = FrameSplitter()
        self._out: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bound what the other end may leave unread."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)

    def _send(self, frame: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        if self._out and not self._transport.is_closing():
            self._transport.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
        self._out.clear()

    async def request_snapshot(self) -> bytes:
        """Return the other end's metric values; cancelled when the channel ends."""
        self._last += 1
        wanted: asyncio.Future[bytes] = self._loop.create_future()
        self._wanted[self._last] = wanted
        self._send(signal_frame(SNAPSHOT_WANTED, identity=self._last))
        return await wanted

    def _receive_snapshot(self, frame: Frame) -> None:
        wanted = self._wanted.pop(frame.id, None)
        if wanted is not None and not wanted.done():
            wanted.set_result(text_of(frame))


def signal_frame(kind: int, *, detail: int = 0, identity: int = 0, number: float = 0.0) -> bytes:
    """Return a frame that is its header alone: CANCEL, STATE, SNAPSHOT_WANTED."""
    return HEADER.pack(32, kind, detail, 0, 0, identity, number)


def request_frame(identity: int, rows: Sequence[Any], seconds: float) -> bytes:
    """Return a request of rows, all tokens or all tensors of one shape, to answer in `seconds`."""
    if isinstance(rows[0], Tokens):
        return _tokens_frame(identity, rows, seconds)
    columns = [np.stack(column) for column in zip(*rows, strict=True)]
    return _arrays_frame(TENSORS, columns, identity, seconds, len(rows))


def request_rows(frame: Frame) -> Sequence[Any]:
    """Return the rows of a TOKENS or TENSORS frame, views of its bytes."""
    if frame.kind == TOKENS:
        return _token_rows(frame)
    return list(zip(*arrays_of(frame), strict=True))


def response_frame(identity: int, arrays: Arrays, waiting: int) -> bytes:
    """Return an answer, with the number of rows in the supervisor's queue. Raises TooLarge."""
    return _arrays_frame(ANSWER, arrays, identity, waiting, 0)


def arrays_of(frame: Frame) -> Arrays:
    """Return the arrays of a TENSORS or ANSWER frame, views of its bytes."""
    arrays, data, offset = [], frame.data, frame.begin
    for _ in range(frame.parts):
        word, axes = _ARRAY.unpack_from(data, offset)
        shape = struct.unpack_from(f"={axes}I", data, offset + 8)
        offset += 8 + 4 * axes + (-4 * axes % 8)
        dtype, count = _dtype(word), math.prod(shape)
        arrays.append(np.frombuffer(data, dtype, count, offset).reshape(shape))
        nbytes = count * dtype.itemsize
        offset += nbytes + (-nbytes % 8)
    return tuple(arrays)


def fault_frame(identity: int, fault: RequestFault) -> bytes:
    """Return the fault of a request, with the sentence for its client."""
    return _text_frame(FAULT, identity, f"{type(fault).__name__}\n{fault}".encode())


def fault_of(frame: Frame) -> RequestFault:
    """Return the fault of a FAULT frame; a class that this process does not know is Unavailable."""
    name, _, sentence = text_of(frame).decode(errors="replace").partition("\n")
    return FAULTS.get(name, Unavailable)(sentence)


def snapshot_frame(identity: int, words: bytes) -> bytes:
    """Return a process' metric values."""
    return _text_frame(SNAPSHOT, identity, words)


def text_of(frame: Frame) -> bytes:
    """Return the text of a FAULT or SNAPSHOT frame."""
    return frame.data[frame.begin : frame.begin + frame.rows]


def _tokens_frame(identity: int, rows: Sequence[Tokens], seconds: float) -> bytes:
    count = len(rows)
    typed = any(row.type_ids is not None for row in rows)
    pieces = [np.fromiter(map(len, rows), np.int32, count), *(row.ids for row in rows)]
    if typed:
        pieces += [
            np.zeros(len(row), np.int32) if row.type_ids is None else row.type_ids for row in rows
        ]
    flat = np.concatenate(pieces, dtype=np.int32)
    size = 32 + flat.nbytes
    header = HEADER.pack(
        size + (-size % 8), TOKENS, TYPED if typed else 0, 0, count, identity, seconds
    )
    return b"".join((header, flat, b"\0" * (-size % 8)))


def _token_rows(frame: Frame) -> list[Tokens]:
    data, count, begin = frame.data, frame.rows, frame.begin
    lengths = np.frombuffer(data, _INT32, count, begin).tolist()
    begin += 4 * count
    total = lengths[0] if count == 1 else sum(lengths)
    ids = np.frombuffer(data, _INT32, total, begin)
    if not frame.detail & TYPED:
        return [Tokens(ids)] if count == 1 else [Tokens(piece) for piece in _cut(ids, lengths)]
    types = np.frombuffer(data, _INT32, total, begin + 4 * total)
    return [Tokens(*pair) for pair in zip(_cut(ids, lengths), _cut(types, lengths), strict=True)]


def _cut(flat: Array, lengths: Sequence[int]) -> Iterator[Array]:
    begin = 0
    for length in lengths:
        yield flat[begin : begin + length]
        begin += length


def _arrays_frame(
    kind: int, arrays: Sequence[Array], identity: int, number: float, rows: int
) -> bytes:
    pieces: list[Any] = [b""]
    size = 32
    for array in arrays:
        described = _description(array.dtype, array.shape)
        nbytes = array.nbytes
        pieces.append(described)
        pieces.append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
        size += len(described) + nbytes
        if nbytes & 7:
            pieces.append(b"\0" * (-nbytes % 8))
            size += -nbytes % 8
    if size > MAX_FRAME_BYTES:
        raise TooLarge(
            f"The request's rows or answers take {size} bytes, more than {MAX_FRAME_BYTES}; send "
            "it in parts."
        )
    pieces[0] = HEADER.pack(size, kind, 0, len(arrays), rows, identity, number)
    return b"".join(pieces)


@lru_cache(maxsize=1024)
def _description(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Type and shape of an array, as many bytes as keep what follows aligned."""
    words = struct.pack(f"={len(shape)}I", *shape)
    return _ARRAY.pack(dtype.str.encode(), len(shape)) + words + b"\0" * (-len(words) % 8)


@lru_cache(maxsize=64)
def _dtype(word: bytes) -> np.dtype[Any]:
    return np.dtype(word.rstrip(b"\0").decode())


def _text_frame(kind: int, identity: int, words: bytes) -> bytes:
    padding = -len(words) % 8
    size = 32 + len(words) + padding
    header = HEADER.pack(size, kind, 0, 0, len(words), identity, 0.0)
    return b"".join((header, words, b"\0" * padding))
