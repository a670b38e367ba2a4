"""Starts Triton and the HTTP server before it, watches both, and ends both.

Exit codes: 0 drained and stopped; 2 a setting is wrong; 4 the port cannot be used; 6 a model can
no longer answer; else Triton's own, or 1 where a signal ended it.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress

from container.server.http.messages import HttpLimits
from container.server.http.server import HttpServer
from container.server.process import (
    MALLOC_VARIABLES,
    free_ports,
    raise_descriptor_limit,
    run_front,
    stop_event,
    tune_interpreter,
)
from container.server.settings import Settings, bind_address, process_environment
from container.server.telemetry.failure_log import FailureLog, stderr
from container.triton_front.health import Health, stub_processes
from container.triton_front.routes import TritonRoutes, single_model
from container.triton_front.upstream import TritonClient

MODEL_BROKEN, TRITON_KILLED = 6, 1
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
            lambda settings, listener: TritonFront(settings, listener, log).serve(command),
        )
    finally:
        log.close()


class TritonFront:
    """Triton with the HTTP server before it."""

    def __init__(self, settings: Settings, listener: socket.socket, log: FailureLog) -> None:
        self._settings, self._listener, self._log = settings, listener, log

    async def serve(self, command: Sequence[str]) -> int:
        """Serve until a signal, Triton's end or a broken model, and return the exit code."""
        settings, (port, metrics_port) = self._settings, free_ports(2)
        metrics = TritonClient(metrics_port) if has_metrics(command) else None
        raise_descriptor_limit(2 * settings.max_connections)
        stop = stop_event()
        process = await asyncio.create_subprocess_exec(
            *triton_command(command, port, None if metrics is None else metrics_port),
            env=triton_environment(process_environment()),
        )
        tune_interpreter()
        loop = asyncio.get_running_loop()
        triton = TritonClient(port)
        health = Health(triton.request, lambda: stub_processes(process.pid), loop.time)
        routes = TritonRoutes(
            triton,
            health,
            multi_model=settings.multi_model,
            max_body_bytes=settings.max_body_bytes,
            deadline_seconds=settings.deadline_seconds,
            failed=lambda fault: self._log.report(
                "request_failed", fault, stage="http", status=500
            ),
            metrics=metrics,
        )
        if not settings.multi_model:
            health.add(single_model(settings.model_dir))
        limits = HttpLimits(
            body_bytes=settings.max_body_bytes,
            request_seconds=settings.request_seconds,
            max_connections=settings.max_connections,
        )
        server = HttpServer(routes, limits=limits)
        await server.start(self._listener)
        print(f"Checking requests on {bind_address(settings)} for Triton.", flush=True)
        try:
            code = await self._watch(process, stop, health, routes)
            await server.drain(LAST_SECONDS if code else settings.drain_seconds)
        finally:
            triton.close()
            if metrics is not None:
                metrics.close()
            await _end(process)
        return code

    async def _watch(
        self, process: Process, stop: asyncio.Event, health: Health, routes: TritonRoutes
    ) -> int:
        """Return the exit code once something ends."""
        ended = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(stop.wait())
        broken = asyncio.ensure_future(self._inspect(health, routes))
        tasks: set[asyncio.Future[object]] = {ended, stopping, broken}  # type: ignore[arg-type]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        if stopping.done() and not stopping.cancelled():
            return 0
        if ended.done() and not ended.cancelled():
            status = ended.result()
            self._say(f"Triton ended with status {status}, so this server ends.")
            routes.ending = "Triton has ended; try again in a second."
            return status if status > 0 else TRITON_KILLED
        reason = broken.result()
        self._say(f"A model cannot answer, so this server ends: {reason}.")
        routes.ending = f"A model cannot answer: {reason}. The server is being replaced."
        return MODEL_BROKEN

    async def _inspect(self, health: Health, routes: TritonRoutes) -> str:
        """Inspect the models' health; return why the server must end."""
        while not await routes.triton_is_ready():
            await asyncio.sleep(STARTING_SECONDS)
        while True:
            await health.inspect()
            for model in health.broken_models():
                self._say(f"Model {model.name!r} cannot answer: {model.broken}.")
                if model.load is None or model.lost_process:
                    return model.broken
                fault = await routes.reload(model)
                if fault:
                    return f"{model.broken}, and loading it again failed: {fault}"
                self._say(f"Model {model.name!r} was loaded again.")
            ready = all(model.is_ready for model in health.models.values())
            await asyncio.sleep(INSPECT_SECONDS if ready else STARTING_SECONDS)

    def _say(self, sentence: str) -> None:
        with suppress(OSError):
            print(sentence, file=sys.stderr, flush=True)


async def _end(process: Process) -> None:
    """End Triton, by force when it does not end in time."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), TRITON_STOP_SECONDS)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
