"""Starts Triton and the HTTP server before it, watches both, and ends both.

Exit codes: 0 drained and stopped; 2 a setting is wrong; 4 the port cannot be used; 6 a model can
no longer answer; else Triton's own, or 1 where a signal ended it.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence

from container.server.http.messages import HttpLimits
from container.server.http.server import HttpServer
from container.server.process import (
    KILLED,
    MALLOC_VARIABLES,
    end_process,
    first_done,
    free_ports,
    raise_descriptor_limit,
    run_front,
    say,
    stop_event,
    tune_interpreter,
)
from container.server.settings import Settings, bind_address, process_environment
from container.server.telemetry.failure_log import FailureLog, stderr
from container.server.upstream import Upstream
from container.triton_front.health import Health, stub_processes
from container.triton_front.routes import TritonRoutes, watched_model

MODEL_BROKEN = 6
PORT_FLAG, RANGE_FLAG = "--sagemaker-port=", "--sagemaker-safe-port-range="
METRICS_FLAG, METRICS_PORT_FLAG = "--allow-metrics=", "--metrics-port="
METRICS_ADDRESS_FLAG = "--metrics-address="
REPLACED_FLAGS = (PORT_FLAG, RANGE_FLAG, METRICS_PORT_FLAG, METRICS_ADDRESS_FLAG)
INSPECT_SECONDS, STARTING_SECONDS = 1.0, 0.05
TRITON_STOP_SECONDS, LAST_SECONDS = 4.0, 5.0
"""Of the 30 s between SageMaker's SIGTERM and SIGKILL, 25 drain; a broken server drains shortly."""


def triton_command(
    command: Sequence[str], port: int, metrics_port: int | None = None
) -> tuple[str, ...]:
    """Return Triton's command with other ports for SageMaker and metrics, which only we ask."""
    kept = [word for word in command if not word.startswith(REPLACED_FLAGS)]
    metrics = (f"{METRICS_ADDRESS_FLAG}127.0.0.1", f"{METRICS_PORT_FLAG}{metrics_port}")
    return (*kept, f"{PORT_FLAG}{port}", *(() if metrics_port is None else metrics))


def triton_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return Triton's variables: its processes keep as little freed memory as this one does.

    glibc reads the variables; who sets them for the container keeps theirs.
    """
    return {**MALLOC_VARIABLES, **inherited}


def has_metrics(command: Sequence[str]) -> bool:
    """Return True where Triton's command turns its metrics on; of several words the last counts."""
    words = [word for word in command if word.startswith(METRICS_FLAG)]
    return bool(words) and words[-1] == f"{METRICS_FLAG}true"


def main(command: Sequence[str]) -> int:
    """Run Triton's command behind the server, and return the exit code."""
    log = FailureLog(stderr)
    try:
        return run_front(
            command,
            "tritonserver and its own arguments",
            lambda settings, listener: _serve(command, settings, listener, log),
        )
    finally:
        log.close()


async def _serve(
    command: Sequence[str], settings: Settings, listener: socket.socket, log: FailureLog
) -> int:
    """Serve until a signal, Triton's end or a broken model, and return the exit code."""
    port, metrics_port = free_ports(2)
    metrics = Upstream(metrics_port, "Triton") if has_metrics(command) else None
    raise_descriptor_limit(2 * settings.max_connections)
    stop = stop_event()
    process = await asyncio.create_subprocess_exec(
        *triton_command(command, port, None if metrics is None else metrics_port),
        env=triton_environment(process_environment()),
    )
    tune_interpreter()
    triton = Upstream(port, "Triton")
    clock = asyncio.get_running_loop().time
    health = Health(triton.request, lambda: stub_processes(process.pid), clock)
    routes = TritonRoutes(
        triton,
        health,
        settings,
        failed=lambda fault: log.report("request_failed", fault, stage="http", status=500),
        metrics=metrics,
    )
    if not settings.multi_model:
        health.add(watched_model(settings.model_dir))
    server = HttpServer(routes, limits=HttpLimits.of(settings))
    await server.start(listener)
    print(f"Checking requests on {bind_address(settings)} for Triton.", flush=True)
    try:
        code = await _watch(process, stop, health, routes)
        await server.drain(LAST_SECONDS if code else settings.drain_seconds)
    finally:
        triton.close()
        if metrics is not None:
            metrics.close()
        await end_process(process, TRITON_STOP_SECONDS)
    return code


async def _watch(
    process: Process, stop: asyncio.Event, health: Health, routes: TritonRoutes
) -> int:
    """Return the exit code once something ends; `routes` then say why."""
    inspection = asyncio.ensure_future(_inspect(health, routes))
    await first_done(process.wait(), stop.wait(), inspection)
    if stop.is_set():
        return 0
    if process.returncode is not None:
        status = process.returncode
        say(f"Triton ended with status {status}, so this server ends.")
        routes.ending = "Triton has ended; try again in a second."
        return status if status > 0 else KILLED
    reason = inspection.result()
    say(f"A model cannot answer, so this server ends: {reason}.")
    routes.ending = f"A model cannot answer: {reason}. The server is being replaced."
    return MODEL_BROKEN


async def _inspect(health: Health, routes: TritonRoutes) -> str:
    """Inspect the models' health; return why the server must end."""
    while not await routes.triton_is_ready():
        await asyncio.sleep(STARTING_SECONDS)
    while True:
        await health.inspect()
        for model in health.broken_models():
            say(f"Model {model.name!r} cannot answer: {model.broken}.")
            if model.load is None or model.lost_process:
                return model.broken
            fault = await routes.reload(model)
            if fault:
                return f"{model.broken}, and loading it again failed: {fault}"
            say(f"Model {model.name!r} was loaded again.")
        ready = all(model.is_ready for model in health.models.values())
        await asyncio.sleep(INSPECT_SECONDS if ready else STARTING_SECONDS)
