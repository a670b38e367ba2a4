"""One model, with HTTP in the process that owns the engine."""

from __future__ import annotations

import socket

from container.server.composition.answerings import model_answering
from container.server.composition.parts import (
    Say,
    StoppedLoading,
    limits_of,
    place_of,
    stop_on_signals,
    unless_stopped,
)
from container.server.http.server import HttpServer
from container.server.serving.failure_log import FailureLog
from container.server.serving.interpreter import share_interpreter
from container.server.serving.metrics import gauge
from container.server.serving.model import Model, count_truncated, opened, plane_of
from container.server.serving.samples import Samples
from container.server.settings import Settings


async def serve_one_process(
    settings: Settings, model: Model, listener: socket.socket, *, log: FailureLog, say: Say
) -> None:
    """Serves until a signal drains it: /ping answers 503 while the engine loads.

    Raises Unloadable and StoppedLoading.
    """
    share_interpreter()
    samples, plane, stop = Samples(), plane_of(model, settings), stop_on_signals()
    count_truncated(plane, model, samples)
    server = HttpServer(
        model_answering(plane, model, settings, samples, log), limits=limits_of(settings)
    )
    gauge(samples, "roundhouse_connections", lambda: server.connections)
    gauge(samples, "roundhouse_models_loaded", lambda: int(plane.ready))
    await server.start(listener)
    try:
        batcher = await unless_stopped(opened(model, settings, samples, log), stop)
    except BaseException as fault:
        plane.drain()
        await server.drain(settings.drain_seconds if isinstance(fault, StoppedLoading) else 0)
        raise
    plane.open(batcher)
    say(f"Serving {model.name} on {place_of(settings)}.")
    await stop.wait()
    plane.drain()
    await server.drain(settings.drain_seconds)
    batcher.close()
