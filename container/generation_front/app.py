"""Starts the engine and the HTTP server before it, watches both, and ends both.

Exit codes: 0 drained and stopped; 2 a setting is wrong; 4 the port cannot be used or the command
cannot be started; else the engine's own, or 1 where a signal ended it.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress

from aiohttp.web import RequestHandler, Server, ServerRunner, SockSite

from container.generation_front.routes import Routes
from container.generation_front.settings import (
    EngineSettings,
    engine_environment,
    read_engine_settings,
)
from container.generation_front.warm_up import warm_up
from container.server.process import (
    KILLED,
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
from container.server.types import first_line
from container.server.upstream import Upstream

LAST_SECONDS, ENGINE_STOP_SECONDS = 1.0, 3.0
"""Of the 30 s between SageMaker's SIGTERM and SIGKILL, 25 drain; these follow."""
HEADER_BYTES = 8190
IDLE_SECONDS = 75.0
"""Between two requests of a connection, and until the end of the next one's header."""
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
PR_SET_PDEATHSIG = 1


def main(command: Sequence[str]) -> int:
    """Run the engine's command behind the server, and return the exit code."""
    # aiohttp logs each malformed request with a traceback.
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)

    async def serve_command(settings: Settings, listener: socket.socket) -> int:
        engine_settings = read_engine_settings(process_environment())
        return await serve(command, listener, settings, engine_settings)

    return run_front(command, "the engine's command and its own", serve_command)


class BoundedServer(Server):
    """aiohttp's server, with bounds of connections, headers and idle seconds."""

    def __init__(
        self, routes: Routes, max_connections: int, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        super().__init__(
            routes,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=idle_seconds,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )
        self._most = max_connections

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection, and refuse it where there are too many."""
        super().connection_made(handler, transport)
        if len(self.connections) > self._most:
            transport.write(FULL)
            handler.force_close()


async def serve(
    command: Sequence[str],
    listener: socket.socket,
    settings: Settings,
    engine_settings: EngineSettings,
) -> int:
    """Serve until a signal or the engine's end, and return the exit code."""
    (port,) = free_ports(1)
    raise_descriptor_limit(2 * settings.max_connections)
    stop = stop_event()
    process = await asyncio.create_subprocess_exec(
        *command,
        env=engine_environment(process_environment(), port),
        # A signal to our group must not reach the engine, which ends its streams at once.
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    engine = Upstream(port, "The engine")
    routes = Routes(engine, settings, engine_settings, _report)
    tune_interpreter()
    server = BoundedServer(routes, settings.max_connections)
    runner = ServerRunner(server, shutdown_timeout=LAST_SECONDS)
    await runner.setup()
    await SockSite(runner, listener, backlog=2048).start()
    say(f"Checking requests on {bind_address(settings)} for the engine on port {port}.")
    try:
        code = await _watch(process, stop, engine, routes, engine_settings)
        cut = await routes.admission.drain(0 if code else settings.drain_seconds, LAST_SECONDS)
        say(f"Drained; {cut} requests were cut." if cut else "Drained.")
    finally:
        await runner.cleanup()
        engine.close()
        await end_process(process, ENGINE_STOP_SECONDS, group=True)
    return code


async def _watch(
    process: Process,
    stop: asyncio.Event,
    engine: Upstream,
    routes: Routes,
    engine_settings: EngineSettings,
) -> int:
    """Return the exit code once something ends; the engine is warmed meanwhile."""
    warming = asyncio.ensure_future(warm_up(engine, engine_settings, say))
    warming.add_done_callback(lambda task: _set_ready(task, routes))
    try:
        await first_done(process.wait(), stop.wait())
    finally:
        warming.cancel()
    if stop.is_set():
        return 0
    status = await process.wait()
    say(f"The engine ended with status {status}, so this server ends.")
    return status if status > 0 else KILLED


def _set_ready(task: asyncio.Task[None], routes: Routes) -> None:
    if not task.cancelled():
        fault = task.exception()
        routes.not_ready = "" if fault is None else f"The warm-up failed: {first_line(fault)}."


def _end_with_parent() -> None:
    """Have the kernel end the engine when this process is killed; elsewhere nothing happens."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _report(fault: BaseException) -> None:
    say(f"A request failed here: {type(fault).__name__}: {first_line(fault)[:500]}")
