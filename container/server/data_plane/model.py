"""A model that can be served: its signature, the limits of its batches, how its engine loads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from container.archive import EngineArchive
from container.server.batching.batch import Limits
from container.server.batching.batcher import Batcher
from container.server.batching.slots import SlotThread
from container.server.data_plane.plane import SHARED, SHARED_PIXELS, DataPlane, Encoder
from container.server.engines.engine import Costs, Engine, longest_sequence
from container.server.engines.heads import ImageEncoder, PairEncoder, SpanEncoder
from container.server.engines.shaping import zeros
from container.server.engines.tokens import TextEncoder
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metrics import BatchMetrics, ServerMetrics
from container.server.types import (
    HeadSignature,
    ImageSignature,
    Signature,
    TensorSignature,
)
from onboarding.manifest import Manifest

UNBOUNDED_SEQUENCE = 512
"""Tokens of a row whose engine sets no limit."""
ENCODERS: dict[str, type[TextEncoder]] = {
    "text-ranking": PairEncoder,
    "token-classification": SpanEncoder,
}
"""What makes tokens of a request's rows, where they are no single texts."""
Result = TypeVar("Result")


def model_signature(manifest: Manifest) -> Signature | TensorSignature | HeadSignature:
    """Return the served model as a client sees it: of texts when it has a tokenizer."""
    is_of_images = manifest.image_processor is not None
    if manifest.tokenizer_file is None and not is_of_images:
        return TensorSignature(
            model=manifest.model, inputs=manifest.inputs, outputs=manifest.outputs
        )
    if manifest.activation is not None or is_of_images:
        return (ImageSignature if is_of_images else HeadSignature)(
            model=manifest.model,
            task=manifest.task,
            inputs=manifest.inputs,
            outputs=manifest.outputs,
            labels=manifest.labels,
            activation="identity" if manifest.activation is None else manifest.activation,
        )
    return Signature(
        model=manifest.model,
        input_name=manifest.inputs[0].name,
        output_name=manifest.outputs[0].name,
        prompts=manifest.prompts,
    )


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model before its engine is loaded."""

    signature: Signature | TensorSignature | HeadSignature
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
        sequences = [item.sequence[0] for item in manifest.optimization_profiles if item.sequence]
        shortest = min(sequences, default=None)
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


def data_plane_of(model: Model, settings: Settings) -> DataPlane:
    """Return the model's data plane, which answers once it is opened."""
    return DataPlane(
        signature=model.signature,
        encoder=model.encoder,
        max_request_rows=settings.max_request_rows,
        deadline_seconds=settings.deadline_seconds,
        budget=SHARED_PIXELS if isinstance(model.signature, ImageSignature) else SHARED,
    )


def count_truncated(plane: DataPlane, model: Model, metrics: ServerMetrics) -> None:
    """Count the texts that a plane truncates."""
    if model.encoder is not None:
        plane.on_truncated(metrics.truncated_texts.labels(model.name).inc)


async def load_batcher(
    model: Model, settings: Settings, metrics: ServerMetrics, log: FailureLog
) -> Batcher:
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
    observer = BatchMetrics(metrics, model.name, log=log)
    batcher = Batcher(
        engine=engine,
        probe=model.probe,
        limits=Limits(
            max_tokens=model.max_tokens,
            queue_rows=min(settings.queue_rows, model.most_queued or settings.queue_rows),
            run_seconds=settings.deadline_seconds,
        ),
        costs=costs,
        kind=_shapes if isinstance(model.signature, TensorSignature) else None,
        observer=observer,
        threads=threads,
    )
    observer.watch_queue(lambda: batcher.waiting)
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
