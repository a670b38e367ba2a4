"""A model that can be served.

How it is asked, what its batches may hold, how its engine is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from container.archive import EngineArchive
from container.server.batching.batch import Limits
from container.server.batching.batcher import Batcher
from container.server.batching.slots import SlotThread, slot_threads
from container.server.data_plane.plane import DataPlane, Encoder
from container.server.engines.engine import Costs, Engine, longest_sequence
from container.server.engines.shaping import zeros
from container.server.engines.tokens import TextEncoder
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metric_values import MetricValues
from container.server.telemetry.metrics import BatchMetrics, counter
from container.server.types import MemoryShort, OutOfMemory, Signature, TensorSignature
from onboarding.manifest import Manifest


def model_signature(manifest: Manifest) -> Signature | TensorSignature:
    """The served model as a client sees it.

    Of texts when the archive has a tokenizer, else of tensors.
    """
    if manifest.tokenizer_file is None:
        return TensorSignature(
            model=manifest.model, inputs=manifest.inputs, outputs=manifest.outputs
        )
    return Signature(
        model=manifest.model,
        input_name=manifest.inputs[0].name,
        output_name=manifest.outputs[0].name,
    )


def text_encoder(archive: EngineArchive) -> TextEncoder | None:
    """Return the encoder of texts into rows; `None` for a model of tensors.

    Raises what the tokenizer's file raises.
    """
    if archive.tokenizer is None:
        return None
    manifest = archive.manifest
    most = longest_sequence(manifest.optimization_profiles)
    return TextEncoder(archive.tokenizer, max_tokens=most, truncates=manifest.auto_truncate)


def platform_name(manifest: Manifest) -> str:
    """Return the engine's platform as Triton and KServe's metadata name it."""
    return {"onnxruntime": "onnxruntime_onnx", "tensorrt": "tensorrt_plan"}[manifest.runtime.name]


UNBOUNDED_SEQUENCE = 512
"""Tokens of a row whose engine sets no limit."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model before its engine is loaded."""

    signature: Signature | TensorSignature
    platform: str
    """The engine's name in Triton's words."""
    encoder: Encoder | None
    probe: Sequence[Any]
    """Rows that every sound engine answers."""
    max_tokens: int
    """Of a batch, padding included; each array of a row of tensors counts as one."""
    load: Callable[[], Engine]

    @property
    def name(self) -> str:
        """The name that clients use."""
        return self.signature.model


def servable_model(archive: EngineArchive, settings: Settings, load: Callable[[], Engine]) -> Model:
    """The model of a verified archive. Raises what a broken tokenizer makes its library raise."""
    manifest, encoder = archive.manifest, text_encoder(archive)
    most = settings.max_batch_tokens
    return Model(
        signature=model_signature(manifest),
        platform=platform_name(manifest),
        encoder=encoder,
        probe=_probe(manifest, encoder),
        max_tokens=_largest_batch(manifest) if most is None else most,
        load=load,
    )


def data_plane_of(model: Model, settings: Settings) -> DataPlane:
    """The model's data plane, which answers once it is opened."""
    return DataPlane(
        signature=model.signature,
        encoder=model.encoder,
        max_request_rows=settings.max_request_rows,
        deadline_seconds=settings.deadline_seconds,
    )


def count_truncated(
    plane: DataPlane, model: Model, metric_values: MetricValues, *, name: str | None = None
) -> None:
    """Count the texts that a plane truncates, under the name that the model was loaded by."""
    if model.encoder is not None:
        plane.on_truncated(
            counter(
                metric_values, "roundhouse_truncated_texts", model.name if name is None else name
            ).add
        )


async def load_batcher(
    model: Model, settings: Settings, metric_values: MetricValues, log: FailureLog
) -> Batcher:
    """Load and warm up the model's engine in its first slot's thread, and return its batcher.

    Raises what loading raises.
    """
    first = SlotThread("slot 0")
    try:
        engine, costs = await _run_in_thread(first, lambda: _warm(model.load()))
        engine.warm_up_inline()
    except BaseException:
        first.close()
        raise
    threads = slot_threads(engine.slots, first)
    return model_batcher(
        model, engine, costs, settings, BatchMetrics(metric_values, model.name, log=log), threads
    )


def model_batcher(
    model: Model,
    engine: Engine,
    costs: Costs,
    settings: Settings,
    metrics: BatchMetrics,
    threads: Sequence[SlotThread] | None = None,
) -> Batcher:
    """Return a batcher for a warm engine; `threads`: one a slot, new ones if none are given."""
    batcher = Batcher(
        engine=engine,
        probe=model.probe,
        limits=Limits(
            max_tokens=model.max_tokens,
            queue_rows=settings.queue_rows,
            run_seconds=settings.deadline_seconds,
        ),
        costs=costs,
        kind=_shapes if isinstance(model.signature, TensorSignature) else None,
        observer=metrics,
        threads=threads,
        shortage=OutOfMemory if settings.multi_model else MemoryShort,
    )
    metrics.watch_queue(lambda: batcher.waiting)
    return batcher


def _warm(engine: Engine) -> tuple[Engine, Costs]:
    return engine, engine.warm_up()


async def _run_in_thread(thread: SlotThread, work: Callable[[], Any]) -> Any:
    """Run work in a slot's thread and return its result."""
    loop = asyncio.get_running_loop()
    coming: asyncio.Future[Any] = loop.create_future()

    def run() -> None:
        try:
            result, fault = work(), None
        except BaseException as raised:
            result, fault = None, raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(_set_outcome, coming, result, fault)

    thread.put(run)
    return await coming


def _set_outcome(coming: asyncio.Future[Any], result: Any, fault: BaseException | None) -> None:
    if coming.done():
        return
    if fault is None:
        coming.set_result(result)
    else:
        coming.set_exception(fault)


def _probe(manifest: Manifest, encoder: TextEncoder | None) -> Sequence[Any]:
    if encoder is not None:
        return encoder.probe()
    return [tuple(array[0] for array in zeros(manifest.inputs, 1, None))]


def _largest_batch(manifest: Manifest) -> int:
    if manifest.tokenizer_file is None:
        return manifest.max_batch_size * len(manifest.inputs)
    longest = longest_sequence(manifest.optimization_profiles)
    return manifest.max_batch_size * (UNBOUNDED_SEQUENCE if longest is None else longest)


def _shapes(row: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """Return the shapes that rows of tensors must share to run in one batch."""
    return tuple(array.shape for array in row)
