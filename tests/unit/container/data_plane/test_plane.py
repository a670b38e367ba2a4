"""The data plane before a backend that keeps what it is given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from container.server.data_plane.plane import INLINE_CHARACTERS, DataPlane, EncodingBudget
from container.server.types import (
    DeadlinePassed,
    Encoded,
    RequestFault,
    Signature,
    TooLarge,
    Unavailable,
)

SIGNATURE = Signature(model="m", input_name="text", output_name="embedding")


class Backend:
    is_broken = False
    waiting = 0

    def __init__(self) -> None:
        self.taken: list[tuple[Any, float | None]] = []
        self.fault: Exception | None = None
        self.refused: Exception | None = None

    def refuse(self, rows):
        if self.refused is not None:
            raise self.refused

    def submit(self, rows, *, deadline=None):
        if self.fault is not None:
            raise self.fault
        self.taken.append((rows, deadline))
        future = asyncio.get_running_loop().create_future()
        future.set_result((np.zeros((len(rows), 2)),))
        return future


class Encoder:
    def __init__(self, longest: int | None = None) -> None:
        self.longest = longest
        self.threads: list[int] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.begun = threading.Event()

    def encode(self, texts: Sequence[str]) -> Encoded:
        self.threads.append(threading.get_ident())
        self.begun.set()
        self.go_on.wait(20)
        truncated = 0 if self.longest is None else sum(len(text) > self.longest for text in texts)
        return Encoded([text.upper()[: self.longest] for text in texts], truncated)

    def cost(self, texts: Sequence[str]) -> int:
        return sum(map(len, texts))


def plane(encoder: Encoder | None = None, **changes: Any) -> DataPlane:
    return DataPlane(
        **(
            {
                "signature": SIGNATURE,
                "encoder": encoder,
                "max_request_rows": 3,
                "deadline_seconds": 60,
            }
            | changes
        )
    )


def opened(encoder: Encoder | None = None, **changes: Any) -> tuple[DataPlane, Backend]:
    made, backend = plane(encoder, **changes), Backend()
    made.open(backend)
    return made, backend


async def answer(made: DataPlane, rows: Sequence[Any], **arguments: Any) -> Any:
    return await (await made.submit(rows, **arguments))


def test_texts_are_encoded_and_tensors_go_as_they_come():
    for encoder, expected in ((Encoder(), ["A", "B"]), (None, ["a", "b"])):
        made, backend = opened(encoder)
        (array,) = asyncio.run(answer(made, ["a", "b"]))
        assert array.shape == (2, 2) and backend.taken[0][0] == expected


def test_short_texts_are_encoded_inline_and_long_ones_beside_the_event_loop():
    encoder = Encoder()
    made, _ = opened(encoder)
    asyncio.run(answer(made, ["a" * INLINE_CHARACTERS]))
    asyncio.run(answer(made, ["a" * INLINE_CHARACTERS, "b"]))
    here = threading.get_ident()
    assert [thread == here for thread in encoder.threads] == [True, False]


def test_long_texts_are_encoded_as_many_at_once_as_memory_is_meant_for():
    encoder = Encoder()
    encoder.go_on.clear()
    made, _ = opened(encoder, budget=EncodingBudget(2 * INLINE_CHARACTERS))

    async def run() -> None:
        asked = [
            asyncio.ensure_future(answer(made, ["a" * INLINE_CHARACTERS + "b"])) for _ in range(3)
        ]
        await asyncio.to_thread(encoder.begun.wait, 20)
        assert len(encoder.threads) == 1
        encoder.go_on.set()
        await asyncio.gather(*asked)

    asyncio.run(run())
    assert len(encoder.threads) == 3


@pytest.mark.parametrize("beside", [False, True], ids=["inline", "beside the event loop"])
def test_texts_that_are_cut_are_told_on_the_event_loop_when_the_backend_takes_them(beside):
    made, backend = opened(Encoder(longest=3))
    listed: list[tuple[int, int]] = []
    made.on_truncated(lambda count: listed.append((count, threading.get_ident())))
    texts = ["aaaa", "aaa", "a" * (INLINE_CHARACTERS if beside else 4)]
    asyncio.run(answer(made, texts))
    asyncio.run(answer(made, ["aaa"]))
    assert listed == [(2, threading.get_ident())]
    backend.fault = Unavailable("It is full.")
    with pytest.raises(Unavailable):
        asyncio.run(answer(made, texts))
    assert len(listed) == 1


@pytest.mark.parametrize(
    "text", ["a", "a" * INLINE_CHARACTERS + "b"], ids=["inline", "beside the event loop"]
)
def test_refuses_before_it_encodes_what_the_backend_does_not_take(text):
    encoder = Encoder()
    made, backend = opened(encoder)
    backend.refused = Unavailable("It is full.")
    with pytest.raises(Unavailable, match="full"):
        asyncio.run(answer(made, [text]))
    assert not encoder.threads and not backend.taken


def test_ready_between_open_and_drain_while_the_backend_is_sound():
    made, backend = plane(), Backend()
    assert not made.ready
    made.open(backend)
    assert made.ready
    backend.is_broken = True
    assert not made.ready
    backend.is_broken = False
    made.drain()
    assert not made.ready


def test_deadline_is_the_earlier_of_the_clients_and_the_servers():
    made, backend = opened(deadline_seconds=10)

    async def run() -> None:
        now = asyncio.get_running_loop().time()
        for wanted in (None, now + 5, now + 50):
            await answer(made, ["a"], deadline=wanted)
        servers, clients, bounded = (deadline - now for _, deadline in backend.taken)
        assert clients == 5 and 10 <= servers <= bounded < 20

    asyncio.run(run())


def test_draining_waits_for_texts_that_are_being_encoded_and_gives_them_to_the_backend():
    encoder = Encoder()
    made, backend = opened(encoder)

    async def run() -> None:
        encoder.go_on.clear()
        asking = asyncio.ensure_future(answer(made, ["a" * INLINE_CHARACTERS, "b"]))
        await asyncio.sleep(0)
        await asyncio.to_thread(encoder.begun.wait, 20)
        draining = asyncio.ensure_future(made.drained())
        await asyncio.sleep(0)
        assert not draining.done()
        encoder.go_on.set()
        await draining
        assert len(backend.taken) == 1
        await asking

    asyncio.run(run())


def test_drained_at_once_when_nothing_is_encoded():
    made, _ = opened()
    asyncio.run(made.drained())
    assert not made.ready


@pytest.mark.parametrize(
    ("rows", "fault", "sentence"),
    [([], RequestFault, "holds no texts"), (["a"] * 4, TooLarge, "holds 4 texts; at most 3")],
)
def test_refuses_too_few_or_too_many_rows(rows, fault, sentence):
    made, backend = opened()
    with pytest.raises(fault, match=sentence):
        asyncio.run(answer(made, rows))
    assert not backend.taken


def test_refuses_while_loading_and_draining():
    made = plane()
    with pytest.raises(Unavailable, match="loading"):
        asyncio.run(answer(made, ["a"]))
    made.open(Backend())
    made.drain()
    with pytest.raises(Unavailable, match="draining"):
        asyncio.run(answer(made, ["a"]))


def test_refuses_texts_whose_encoding_took_all_their_time():
    encoder = Encoder()
    made, backend = opened(encoder)

    async def run() -> None:
        with pytest.raises(DeadlinePassed, match="tokenized"):
            await answer(
                made, ["a" * INLINE_CHARACTERS, "b"], deadline=asyncio.get_running_loop().time()
            )

    asyncio.run(run())
    assert not backend.taken
