"""A model and its data plane, which refuses, tokenizes and submits requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from container.archive import EngineArchive
from container.server.batching.batch import Limits
from container.server.batching.batcher import Batcher
from container.server.batching.slots import SlotThread
from container.server.codecs.tensors import shortest_sequence, zeros
from container.server.engines.engine import Costs, Engine, longest_sequence
from container.server.engines.heads import ImageEncoder, PairEncoder, SpanEncoder
from container.server.engines.tokens import TextEncoder
from container.server.process import trim_memory
from container.server.settings import Settings
from container.server.telemetry.metrics import ServerMetrics
from container.server.types import (
    Arrays,
    DeadlinePassed,
    Encoded,
    Form,
    RequestFault,
    Signature,
    TooLarge,
    Unavailable,
)
from onboarding.manifest import Manifest

TRIM_COST = 1_000_000
"""Encoding so much leaves memory behind that is worth returning, in the encoder's units."""
Result = TypeVar("Result")
Encoder = TextEncoder | ImageEncoder
INLINE_CHARACTERS = 4096
"""Texts up to this much are tokenized on the event loop (about a tenth of a millisecond per
thousand characters).
"""
DRAINING = "The server is draining; try again in a second."
LOADING = "The server is still loading its engine; try again in a second."


class DataPlane:
    """One served model, from loading to draining."""

    def __init__(
        self,
        *,
        signature: Signature,
        encoder: Encoder | None,
        max_request_rows: int,
        truncated: Callable[[int], object] = lambda texts: None,
    ) -> None:
        """Without an `encoder` rows go to the engine as they come.

        `truncated` is called with the number of truncated texts of each request that is submitted.
        """
        self.signature = signature
        self._encoder = encoder
        self._max_request_rows = max_request_rows
        self._truncated = truncated
        self._batcher: Batcher | None = None
        self._draining = False

    @property
    def ready(self) -> bool:
        """True when a request would be answered now."""
        return self._batcher is not None and not self._batcher.is_broken and not self._draining

    def open(self, batcher: Batcher) -> None:
        """Start to answer: the engine is loaded and warm."""
        self._batcher = batcher

    def drain(self) -> None:
        """Refuse new requests; submitted ones are answered."""
        self._draining = True

    def encode_short(self, rows: Sequence[Any]) -> Encoded | None:
        """Return rows for `submit`, or None for those that would block the event loop.

        Raises RequestFault.
        """
        batcher = self._open_batcher()
        if not rows:
            raise RequestFault(f"The request holds no {self.signature.rows}.")
        if len(rows) > self._max_request_rows:
            raise TooLarge(
                f"The request holds {len(rows)} {self.signature.rows}; at most "
                f"{self._max_request_rows} are taken at once."
            )
        if self._encoder is None:
            return Encoded(rows, 0)
        batcher.refuse(len(rows))
        return self._encoder.encode(rows) if self._encoder.cost(rows) <= INLINE_CHARACTERS else None

    async def encode_beside(self, rows: Sequence[Any], deadline: float) -> Encoded:
        """Return rows for `submit`, encoded in a thread beside the event loop.

        There are as many threads as cores, and the others wait for their turn: that bounds the
        memory. Raises RequestFault.
        """
        encoder = self._encoder
        assert encoder is not None

        def encode() -> Encoded | None:
            if monotonic() >= deadline:
                return None
            try:
                return encoder.encode(rows)
            finally:
                if encoder.cost(rows) >= TRIM_COST:  # each thread has memory of its own
                    trim_memory()

        encoded = await asyncio.get_running_loop().run_in_executor(None, encode)
        if encoded is None or monotonic() >= deadline:
            raise DeadlinePassed(
                f"The request's time passed while its {self.signature.rows} were encoded; send "
                "fewer, or try again."
            )
        return encoded

    def submit(
        self, encoded: Encoded, *, deadline: float, alone: bool = False
    ) -> asyncio.Future[Arrays]:
        """Submit rows; return the answer to come: one array per output, rows in order.

        Cancelling stops the work. `deadline` is a time of the event loop; `alone`: no other request
        is under way. Raises RequestFault.
        """
        answers = self._open_batcher().submit(encoded.rows, deadline=deadline, alone=alone)
        if encoded.truncated:
            self._truncated(encoded.truncated)
        return answers

    def _open_batcher(self) -> Batcher:
        if self._draining:
            raise Unavailable(DRAINING)
        if self._batcher is None:
            raise Unavailable(LOADING)
        return self._batcher


UNBOUNDED_SEQUENCE = 512
"""Tokens of a row whose engine sets no limit."""
ENCODERS: dict[str, type[TextEncoder]] = {
    "text-ranking": PairEncoder,
    "token-classification": SpanEncoder,
}
"""What makes tokens of a request's rows, where they are no single texts."""


def model_signature(manifest: Manifest) -> Signature:
    """Return the served model as a client sees it: of texts when it has a tokenizer."""
    form: Form = "texts"
    if manifest.image_processor is not None:
        form = "images"
    elif manifest.tokenizer_file is None:
        form = "tensors"
    elif manifest.activation is not None:
        form = "heads"
    return Signature(
        form=form,
        model=manifest.model,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        task=manifest.task,
        labels=manifest.labels,
        activation="identity" if manifest.activation is None else manifest.activation,
        prompts=manifest.prompts,
    )


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model before its engine is loaded."""

    signature: Signature
    encoder: Encoder | None
    probe: Sequence[Any]
    """Rows that every sound engine answers."""
    max_tokens: int
    """Of a batch, padding included; each array of a row of tensors counts as one."""
    load: Callable[[], Engine]
    most_queued: int | None = None
    """Rows that may wait, where their memory bounds them; None: as many as the settings say."""

    @property
    def name(self) -> str:
        """The name that clients use."""
        return self.signature.model


def servable_model(archive: EngineArchive, settings: Settings, load: Callable[[], Engine]) -> Model:
    """Return the model of a verified archive.

    Raises what a broken tokenizer makes its library raise.
    """
    manifest = archive.manifest
    encoder: Encoder | None = None
    most_queued: int | None = None
    probe: Sequence[Any]
    if manifest.image_processor is not None:
        encoder = images = ImageEncoder(manifest.image_processor)
        probe, row_tokens = images.probe(), 1
        most_queued = images.most_rows
    elif archive.tokenizer is None:
        # Of a length that a profile takes: a probe that fails stands for a broken engine.
        shortest = shortest_sequence(manifest.optimization_profiles)
        probe = [tuple(array[0] for array in zeros(manifest.inputs, 1, shortest))]
        row_tokens = len(manifest.inputs)
    else:
        longest = longest_sequence(manifest.optimization_profiles)
        encoder = texts = ENCODERS.get(manifest.task, TextEncoder)(
            archive.tokenizer, max_tokens=longest, truncates=manifest.auto_truncate
        )
        probe = texts.probe()
        row_tokens = UNBOUNDED_SEQUENCE if longest is None else longest
    most = settings.max_batch_tokens
    return Model(
        signature=model_signature(manifest),
        encoder=encoder,
        probe=probe,
        max_tokens=manifest.max_batch_size * row_tokens if most is None else most,
        load=load,
        most_queued=most_queued,
    )


async def load_batcher(model: Model, settings: Settings, metrics: ServerMetrics) -> Batcher:
    """Load and warm up the model's engine in its first slot's thread, and return its batcher.

    Raises what loading raises.
    """

    def warm() -> tuple[Engine, Costs]:
        engine = model.load()
        return engine, engine.warm_up()

    first = SlotThread("slot 0")
    try:
        engine, costs = await _run_in_thread(first, warm)
        engine.warm_up_inline()
    except BaseException:
        first.close()
        raise
    threads = [first, *(SlotThread(f"slot {number}") for number in range(1, engine.slots))]
    batcher = Batcher(
        engine=engine,
        probe=model.probe,
        limits=Limits(
            max_tokens=model.max_tokens,
            queue_rows=min(settings.queue_rows, model.most_queued or settings.queue_rows),
            run_seconds=settings.deadline_seconds,
        ),
        costs=costs,
        kind=_shapes if model.signature.form == "tensors" else None,
        observer=metrics,
        threads=threads,
    )
    metrics.watch_queue(lambda: batcher.waiting)
    return batcher


async def _run_in_thread(thread: SlotThread, work: Callable[[], Result]) -> Result:
    """Run work in a slot's thread and return its result."""
    future: Future[Result] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except BaseException as fault:
            future.set_exception(fault)

    thread.put(run)
    return await asyncio.wrap_future(future)


def _shapes(row: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """Return the shapes that rows of tensors must share to run in one batch."""
    return tuple(array.shape for array in row)
