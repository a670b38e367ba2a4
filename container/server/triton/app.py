"""Triton behind this server: its command, its variables, and the health of its models.

The exit code is 6 where a model can no longer answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from container.server.http.messages import HttpLimits
from container.server.process import MALLOC_VARIABLES, say
from container.server.settings import Settings, process_environment
from container.server.supervisor import Backend, free_ports, run_backend
from container.server.telemetry.failure_log import FailureLog
from container.server.triton.health import Health, stub_processes
from container.server.triton.routes import TritonRoutes, watched_model
from container.server.upstream import Upstream

MODEL_BROKEN = 6
PORT_FLAG, RANGE_FLAG = "--sagemaker-port=", "--sagemaker-safe-port-range="
METRICS_FLAG, METRICS_PORT_FLAG = "--allow-metrics=", "--metrics-port="
METRICS_ADDRESS_FLAG = "--metrics-address="
REPLACED_FLAGS = (PORT_FLAG, RANGE_FLAG, METRICS_PORT_FLAG, METRICS_ADDRESS_FLAG)
INSPECT_SECONDS, STARTING_SECONDS = 1.0, 0.05


def triton_command(
    command: Sequence[str], port: int, metrics_port: int | None = None
) -> tuple[str, ...]:
    """Return Triton's command with other ports for SageMaker and metrics, which only we ask."""
    kept = [word for word in command if not word.startswith(REPLACED_FLAGS)]
    metrics = (f"{METRICS_ADDRESS_FLAG}127.0.0.1", f"{METRICS_PORT_FLAG}{metrics_port}")
    return (*kept, f"{PORT_FLAG}{port}", *(() if metrics_port is None else metrics))


def has_metrics(command: Sequence[str]) -> bool:
    """Return True where Triton's command turns its metrics on; of several words the last counts."""
    words = [word for word in command if word.startswith(METRICS_FLAG)]
    return bool(words) and words[-1] == f"{METRICS_FLAG}true"


def main(arguments: Sequence[str]) -> int:
    """Run Triton's command, which follows the word `triton`, and return the exit code."""
    return run_backend(arguments, "tritonserver and its own arguments", Triton)


class Triton(Backend):
    """Triton, which only this process asks through its SageMaker port."""

    name = "Triton"
    # Of the 30 s between SageMaker's SIGTERM and SIGKILL, 25 drain.
    stop_seconds, ended_drain_seconds = 4.0, 5.0

    def __init__(self, command: Sequence[str], settings: Settings, log: FailureLog) -> None:
        port, metrics_port = free_ports(2)
        triton, metrics = Upstream(port, self.name), None
        self.upstreams = [triton]
        if has_metrics(command):
            metrics = Upstream(metrics_port, self.name)
            self.upstreams.append(metrics)
        self.command = triton_command(command, port, None if metrics is None else metrics_port)
        # Triton's processes keep as little freed memory as this one does, as glibc reads it; who
        # sets the variables for the container keeps theirs.
        self.environment = {**MALLOC_VARIABLES, **process_environment()}
        clock = asyncio.get_running_loop().time
        self._health = Health(triton.request, lambda: stub_processes(self.pid), clock)
        self.application = self._routes = TritonRoutes(
            triton,
            self._health,
            settings,
            log=log,
            metrics=metrics,
        )
        self.limits = HttpLimits.of(settings)
        if not settings.multi_model:
            self._health.add(watched_model(settings.model_dir))

    def refuse_all(self, reason: str) -> None:
        self._routes.ending = reason

    async def watch(self) -> int:
        """Return once a model cannot answer."""
        while not await self._routes.triton_is_ready():
            await asyncio.sleep(STARTING_SECONDS)
        while not (fault := self._health.fault):
            await self._health.inspect()
            ready = all(model.is_ready for model in self._health.models.values())
            await asyncio.sleep(INSPECT_SECONDS if ready else STARTING_SECONDS)
        say(f"A model cannot answer, so this server ends: {fault}.")
        self.refuse_all(f"A model cannot answer: {fault}. The server is being replaced.")
        return MODEL_BROKEN
