"""Many models in one process, loaded and unloaded as SageMaker's multi-model contract has it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

from container.archive import ArchiveRefused, EngineArchive
from container.server.composition.answerings import models_answering
from container.server.composition.parts import Say, limits_of, place_of, stop_on_signals
from container.server.engines.engine import Engine
from container.server.http.server import HttpServer
from container.server.serving.data_plane import DataPlane
from container.server.serving.failure_log import FailureLog
from container.server.serving.interpreter import share_interpreter
from container.server.serving.memory import free_mib
from container.server.serving.metrics import BatchMetrics, forget_model, gauge
from container.server.serving.model import Model, batcher_of, count_truncated, model_of, plane_of
from container.server.serving.multi_model import ModelBackend, Models, Opened
from container.server.serving.samples import Samples
from container.server.settings import Settings

Verify = Callable[[Path], EngineArchive]
Load = Callable[[EngineArchive], Engine]


async def serve_many_models(
    settings: Settings,
    listener: socket.socket,
    *,
    verify: Verify,
    load: Load,
    log: FailureLog,
    say: Say,
) -> None:
    """Serves whatever models requests load, until a signal drains it; healthy from the start, as
    SageMaker wants it.
    """
    share_interpreter()
    samples, stop = Samples(), stop_on_signals()
    models = _models(settings, samples, verify=verify, load=load, log=log)
    server = HttpServer(
        models_answering(models, settings, samples, log), limits=limits_of(settings)
    )
    gauge(samples, "roundhouse_connections", lambda: server.connections)
    gauge(samples, "roundhouse_models_loaded", lambda: len(models))
    await server.start(listener)
    say(f"Serving the models that requests load on {place_of(settings)}.")
    await stop.wait()
    await server.drain(settings.drain_seconds)
    await models.close()


def _models(
    settings: Settings, samples: Samples, *, verify: Verify, load: Load, log: FailureLog
) -> Models:
    known: WeakKeyDictionary[DataPlane, Model] = WeakKeyDictionary()

    def planned(archive: EngineArchive) -> DataPlane:
        try:
            model = model_of(archive, settings, lambda: load(archive))
        except Exception as fault:
            raise ArchiveRefused(
                f"Refused: the tokenizer cannot be loaded ({fault}); build the engine again."
            ) from fault
        plane = plane_of(model, settings)
        known[plane] = model
        return plane

    def backend(name: str, found: Opened, plane: DataPlane) -> ModelBackend:
        count_truncated(plane, known[plane], samples, name=name)
        return batcher_of(
            known[plane], found.engine, found.costs, settings, BatchMetrics(samples, name, log=log)
        )

    return Models(
        verify=verify,
        open_engine=load,
        plane=planned,
        backend=backend,
        free_mib=free_mib,
        log=log,
        unloaded=partial(forget_model, samples),
    )
