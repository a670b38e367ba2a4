"""vLLM behind this server: its command, its variables, its warm-up, and its last streams."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from container.server.http.messages import HttpLimits
from container.server.http.server import HttpServer
from container.server.process import say
from container.server.settings import Settings, process_environment
from container.server.supervisor import Backend, free_ports, run_backend
from container.server.telemetry.failure_log import FailureLog
from container.server.types import first_line
from container.server.upstream import Upstream
from container.server.vllm.events import error_body
from container.server.vllm.routes import Routes
from container.server.vllm.settings import engine_environment, read_engine_settings
from container.server.vllm.warm_up import warm_up

LAST_SECONDS = 1.0
"""Of the 30 s between SageMaker's SIGTERM and SIGKILL, 25 drain; this and `stop_seconds` follow."""
MOST_HELD_BYTES = 1 << 28
"""Of bodies in memory at once."""
READER_SECONDS = 60.0
"""Longest that a client may leave 64 KiB of an answer unread."""


def main(arguments: Sequence[str]) -> int:
    """Run the engine's command, which follows the word `vllm`, and return the exit code."""
    return run_backend(arguments, "the engine's command and its own", Engine)


def limits_of(settings: Settings) -> HttpLimits:
    """Return the limits of a server whose answers are streams."""
    limits = HttpLimits.of(settings)
    return replace(limits, unread_seconds=READER_SECONDS, held_bytes=MOST_HELD_BYTES)


class Engine(Backend):
    """vLLM, behind AWS's entry point, whose shell never gets SIGTERM before the streams end."""

    name = "The engine"
    stop_seconds, ended_drain_seconds = 3.0, 0.0
    is_session = True
    error_body = staticmethod(error_body)

    def __init__(self, command: Sequence[str], settings: Settings, log: FailureLog) -> None:
        (port,), variables = free_ports(1), process_environment()
        self.command, self._settings = command, read_engine_settings(variables)
        self.environment = engine_environment(variables, port)
        engine = Upstream(port, self.name)
        self.upstreams = (engine,)
        self.application = self._routes = Routes(engine, settings, self._settings, log)
        self.limits = limits_of(settings)
        self.memory_full = self._routes.metrics.full_memory.inc

    def refuse_all(self, reason: str) -> None:
        self._routes.admission.stopping = reason

    async def watch(self) -> int:
        """Warm the engine up; it says itself whether it is healthy."""
        try:
            await warm_up(self.upstreams[0], self._settings, say)
            self._routes.not_ready = ""
        except Exception as fault:
            self._routes.not_ready = f"The warm-up failed: {first_line(fault)}."
        await asyncio.Event().wait()
        return 0

    async def drain(self, server: HttpServer, seconds: float) -> None:
        """Let the streams in flight end; what is asked meanwhile is answered 503."""
        cut = await self._routes.admission.drain(seconds, LAST_SECONDS)
        await server.drain(LAST_SECONDS)
        say(f"Drained; {cut} requests were cut." if cut else "Drained.")
