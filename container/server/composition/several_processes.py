"""One model, with HTTP in processes of its own before the one that owns the engine."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from container.server.composition.parts import Say, loaded, place_of, stop_on_signals
from container.server.processes.owner import FrontSpec, own
from container.server.serving.backend import Backend
from container.server.serving.failure_log import FailureLog
from container.server.serving.metrics import gauge
from container.server.serving.model import Model, opened
from container.server.serving.samples import Samples
from container.server.settings import Settings


async def serve_several_processes(
    settings: Settings,
    model: Model,
    listener: socket.socket,
    fronts: FrontSpec,
    *,
    log: FailureLog,
    say: Say,
) -> int:
    """The exit code: serves until a signal drains it, or its HTTP processes die all the time.

    Raises Unloadable.
    """
    samples, stop, batchers = Samples(), stop_on_signals(), ExitStack()
    gauge(samples, "roundhouse_models_loaded", lambda: int(bool(serving) and not serving[0].broken))
    serving: list[Backend] = []

    async def load() -> Backend:
        batcher = await loaded(opened(model, settings, samples, log))
        batchers.callback(batcher.close)
        serving.append(batcher)
        say(f"Serving {model.name} on {place_of(settings)} from {fronts.count} HTTP processes.")
        return batcher

    with batchers:
        return await own(
            listener=listener,
            fronts=fronts,
            load=load,
            stop=stop,
            drain_seconds=settings.drain_seconds,
            samples=samples,
            log=log,
            say=say,
        )
