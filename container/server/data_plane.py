"""What the server does with a request, whatever carried it: refuse, tokenize, batch, answer; and when it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Protocol

from tokenizers import Encoding

from container.server.batcher import Batcher, Limits, Rows
from container.server.runtime import Engine
from container.server.types import RequestFault, Signature, TooLarge, Unavailable

WARM_UP_TEXT = "warm up"
INLINE_CHARACTERS = 4096
"""Texts up to this much are tokenized on the event loop (about a tenth of a millisecond per thousand characters)."""


class Encoder(Protocol):
    """Turns texts into rows of tokens."""

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """One row per text, in order."""
        ...


class DataPlane:
    """One served model, from loading to draining."""

    def __init__(
        self, *, signature: Signature, encoder: Encoder, limits: Limits, max_request_rows: int, thread: Executor
    ) -> None:
        self.signature = signature
        self._draining: Callable[[], bool] = bool
        self._encoder = encoder
        self._limits = limits
        self._max_request_rows = max_request_rows
        self._thread = thread
        self._batcher: Batcher[Encoding] | None = None

    @property
    def ready(self) -> bool:
        """True when a request would be answered now."""
        return self._batcher is not None and not self._batcher.broken and not self._draining()

    def drain_when(self, draining: Callable[[], bool]) -> None:
        """Refuses requests from the moment that `draining` says so; those taken get their answers."""
        self._draining = draining

    def open(self, engine: Engine) -> None:
        """Begins to answer with a loaded, warm engine."""
        probe = self._encoder.encode([WARM_UP_TEXT])
        self._batcher = Batcher(run=engine.run, probe=probe, limits=self._limits, thread=self._thread)

    def warm(self, engine: Engine) -> None:
        """Runs the smallest and the largest batch once; blocks, so it belongs in the engine thread."""
        row = self._encoder.encode([WARM_UP_TEXT])[0]
        for rows in (1, self._limits.max_rows):
            engine.run([row] * rows)

    async def submit(self, texts: Sequence[str]) -> asyncio.Future[Rows]:
        """The answers to come, one row per text; cancelling the future stops the work. Raises RequestFault."""
        batcher = self._batcher
        if self._draining():
            raise Unavailable("The server is draining; try again in a second.")
        if batcher is None:
            raise Unavailable("The server is still loading its engine; try again in a second.")
        if not texts:
            raise RequestFault("The request holds no text.")
        if len(texts) > self._max_request_rows:
            raise TooLarge(f"The request holds {len(texts)} texts; at most {self._max_request_rows} are taken at once.")
        return batcher.submit(await self._rows(texts))

    async def _rows(self, texts: Sequence[str]) -> list[Encoding]:
        if sum(map(len, texts)) <= INLINE_CHARACTERS:
            return self._encoder.encode(texts)
        return await asyncio.to_thread(self._encoder.encode, texts)
