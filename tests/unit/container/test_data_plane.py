"""The data plane before a backend that keeps what it is given."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence
from time import monotonic
from typing import Any

import numpy as np
import pytest

from container.server.data_plane import INLINE_CHARACTERS, DataPlane, servable_model
from container.server.settings import Settings
from container.server.types import (
    DeadlinePassed,
    Encoded,
    RequestFault,
    TooLarge,
    Unavailable,
)
from tests.unit.container.engines.plan_archives import tensor_archive
from tests.unit.container.signatures import text_signature

SIGNATURE = text_signature()


class Backend:
    is_broken = False
    waiting = 0

    def __init__(self) -> None:
        self.taken: list[tuple[Any, float | None]] = []
        self.refused: Exception | None = None

    def refuse(self, rows):
        if self.refused is not None:
            raise self.refused

    def submit(self, rows, *, deadline=None, alone=False):
        self.taken.append((rows, deadline))
        future = asyncio.get_running_loop().create_future()
        future.set_result((np.zeros((len(rows), 2)),))
        return future


class Encoder:
    def __init__(self, longest: int | None = None) -> None:
        self.longest = longest
        self.threads: list[int] = []

    def encode(self, texts: Sequence[str]) -> Encoded:
        self.threads.append(threading.get_ident())
        truncated = 0 if self.longest is None else sum(len(text) > self.longest for text in texts)
        return Encoded([text.upper()[: self.longest] for text in texts], truncated)

    def cost(self, texts: Sequence[str]) -> int:
        return sum(map(len, texts))


def data_plane(encoder: Encoder | None = None) -> DataPlane:
    return DataPlane(signature=SIGNATURE, encoder=encoder, max_request_rows=3)


def open_plane(encoder: Encoder | None = None) -> tuple[DataPlane, Backend]:
    plane, backend = data_plane(encoder), Backend()
    plane.open(backend)
    return plane, backend


def answer(plane: DataPlane, rows: Sequence[Any], deadline: float = math.inf) -> Any:
    async def ask():
        encoded = plane.encode_short(rows)
        if encoded is None:
            encoded = await plane.encode_beside(rows, deadline)
        return await plane.submit(encoded, deadline=deadline)

    return asyncio.run(ask())


def test_short_texts_are_encoded_inline_and_long_ones_beside_the_event_loop():
    encoder = Encoder()
    plane, _ = open_plane(encoder)
    answer(plane, ["a" * INLINE_CHARACTERS])
    answer(plane, ["a" * INLINE_CHARACTERS, "b"])
    here = threading.get_ident()
    assert [thread == here for thread in encoder.threads] == [True, False]


@pytest.mark.parametrize(
    "text", ["a", "a" * INLINE_CHARACTERS + "b"], ids=["inline", "beside the event loop"]
)
def test_refuses_before_it_encodes_what_the_backend_does_not_take(text):
    encoder = Encoder()
    plane, backend = open_plane(encoder)
    backend.refused = Unavailable("It is full.")
    with pytest.raises(Unavailable, match="full"):
        answer(plane, [text])
    assert not encoder.threads and not backend.taken


@pytest.mark.parametrize(
    ("rows", "fault", "sentence"),
    [([], RequestFault, "holds no texts"), (["a"] * 4, TooLarge, "holds 4 texts; at most 3")],
)
def test_refuses_too_few_or_too_many_rows(rows, fault, sentence):
    plane, backend = open_plane()
    with pytest.raises(fault, match=sentence):
        answer(plane, rows)
    assert not backend.taken


def test_refuses_while_loading_and_draining():
    plane = data_plane()
    with pytest.raises(Unavailable, match="loading"):
        answer(plane, ["a"])
    backend, ready = Backend(), [plane.ready]
    plane.open(backend)
    ready.append(plane.ready)
    backend.is_broken = True
    ready.append(plane.ready)
    backend.is_broken = False
    plane.drain()
    with pytest.raises(Unavailable, match="draining"):
        answer(plane, ["a"])
    assert [*ready, plane.ready] == [False, True, False, False]


def test_refuses_texts_whose_encoding_took_all_their_time():
    encoder = Encoder()
    plane, backend = open_plane(encoder)
    with pytest.raises(DeadlinePassed, match="encoded"):
        answer(plane, ["a" * INLINE_CHARACTERS, "b"], monotonic())
    assert not backend.taken and not encoder.threads


@pytest.mark.parametrize(("sequence", "length"), [((16, 64, 128), 16), (None, 3)])
def test_probe_of_tensors_has_a_length_that_a_profile_takes(tmp_path, sequence, length):
    archive = tensor_archive(tmp_path, {}, (1, 8, 32), sequence=sequence)
    (row,) = servable_model(archive, Settings(), lambda: None).probe
    assert [array.shape for array in row] == [(length,), (1,)]
