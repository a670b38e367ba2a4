"""What the server does with a request, whatever carried it: refuse, tokenize, batch, answer; and when it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from container.server.batcher import Batcher, Limits, Rows
from container.server.runtime import Engine, joined
from container.server.types import RequestFault, Signature, TensorSignature, TooLarge, Unavailable

INLINE_CHARACTERS = 4096
"""Texts up to this much are tokenized on the event loop (about a tenth of a millisecond per thousand characters)."""


class Encoder(Protocol):
    """Turns a request's rows, texts or tensors, into the engine's."""

    def encode(self, rows: Sequence[Any]) -> Sequence[Any]:
        """One row per row, in order."""
        ...

    def probe(self) -> Sequence[Any]:
        """A row that every sound engine answers."""
        ...

    def cost(self, rows: Sequence[Any]) -> int:
        """How long encoding takes, in characters."""
        ...


class DataPlane:
    """One served model, from loading to draining."""

    def __init__(
        self,
        *,
        signature: Signature | TensorSignature,
        encoder: Encoder,
        limits: Limits,
        max_request_rows: int,
        thread: Executor,
    ) -> None:
        self.signature = signature
        self._draining: Callable[[], bool] = bool
        self._encoder = encoder
        self._limits = limits
        self._max_request_rows = max_request_rows
        self._thread = thread
        self._batcher: Batcher[Any] | None = None

    @property
    def ready(self) -> bool:
        """True when a request would be answered now."""
        return self._batcher is not None and not self._batcher.broken and not self._draining()

    def drain_when(self, draining: Callable[[], bool]) -> None:
        """Refuses requests from the moment that `draining` says so; those taken get their answers."""
        self._draining = draining

    def open(self, engine: Engine) -> None:
        """Begins to answer with a loaded, warm engine."""
        probe, limits, thread = self._encoder.probe(), self._limits, self._thread
        if isinstance(self.signature, TensorSignature):
            self._batcher = Batcher(run=engine.run, probe=probe, limits=limits, thread=thread, kind=_shapes, join=joined)
        else:
            self._batcher = Batcher(run=engine.run, probe=probe, limits=limits, thread=thread)

    async def submit(self, rows: Sequence[Any]) -> asyncio.Future[Rows]:
        """The answers to come, one per row; cancelling the future stops the work. Raises RequestFault."""
        batcher = self._batcher
        if self._draining():
            raise Unavailable("The server is draining; try again in a second.")
        if batcher is None:
            raise Unavailable("The server is still loading its engine; try again in a second.")
        if not len(rows):
            raise RequestFault(f"The request holds no {self.signature.rows}.")
        if len(rows) > self._max_request_rows:
            held = f"{len(rows)} {self.signature.rows}"
            raise TooLarge(f"The request holds {held}; at most {self._max_request_rows} are taken at once.")
        return batcher.submit(await self._encoded(rows))

    async def _encoded(self, rows: Sequence[Any]) -> Sequence[Any]:
        if self._encoder.cost(rows) <= INLINE_CHARACTERS:
            return self._encoder.encode(rows)
        return await asyncio.to_thread(self._encoder.encode, rows)


def _shapes(row: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """What rows of tensors must have in common to share a batch."""
    return tuple(array.shape for array in row)
