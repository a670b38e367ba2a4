"""One HTTP worker: `python -m container.server.processes.http_worker CHANNEL SOCKET`.

Started by the supervisor only; the arguments are the numbers of two inherited sockets. Exit codes:
0 drained; 1 the supervisor is gone; 3 the archive cannot be read.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import NoReturn

import uvloop

from container.archive import EngineArchive
from container.server.data_plane.model import Model, count_truncated, data_plane_of, servable_model
from container.server.data_plane.plane import DataPlane
from container.server.http.application import http_limits, served_model_application
from container.server.http.server import HttpServer
from container.server.processes import frames
from container.server.processes.acceptor import receive_connection
from container.server.processes.channel import EngineChannel
from container.server.settings import Settings, process_settings
from container.server.telemetry.failure_log import FailureLog, stderr
from container.server.telemetry.metric_values import MetricValues
from container.server.telemetry.metrics import exposition, gauge
from onboarding.manifest import MANIFEST_NAME, Manifest

SUPERVISOR_GONE, ARCHIVE = 1, 3
LAST_SECONDS = 1.0
"""Seconds for clients to read their answers once the supervisor is gone."""


def main(arguments: list[str]) -> int:
    """Run one HTTP worker and return its exit code."""
    # Ctrl-C and SIGTERM reach the whole process group, but only the supervisor drains workers.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    end, worker_socket = (socket.socket(fileno=int(number)) for number in arguments)
    settings = process_settings()
    try:
        model = servable_model(_archive(settings), settings, _no_engine)
    except Exception as fault:  # whatever a tokenizer's file makes its library raise
        print(
            f"An HTTP process cannot read the archive: {type(fault).__name__}: {fault}",
            file=sys.stderr,
            flush=True,
        )
        return ARCHIVE
    exit_code: int = uvloop.run(_serve(settings, model, end, worker_socket))
    return exit_code


def _archive(settings: Settings) -> EngineArchive:
    """Return the archive, which the supervisor verified before it started this process."""
    manifest = Manifest.from_bytes((settings.model_dir / MANIFEST_NAME).read_bytes())
    return EngineArchive(root=settings.model_dir, manifest=manifest)


def _no_engine() -> NoReturn:
    raise RuntimeError("an HTTP worker has no engine")


async def _serve(
    settings: Settings, model: Model, end: socket.socket, worker_socket: socket.socket
) -> int:
    """Serve until the supervisor drains this worker or ends."""
    log = FailureLog(stderr, model=model.name)
    try:
        return await HttpWorker(settings=settings, model=model, log=log).serve(end, worker_socket)
    finally:
        log.close()


class HttpWorker:
    """The HTTP server of one process; the supervisor has its engine."""

    def __init__(self, *, settings: Settings, model: Model, log: FailureLog) -> None:
        self._settings, self._plane, self._log = settings, data_plane_of(model, settings), log
        self._metric_values = MetricValues()
        count_truncated(self._plane, model, self._metric_values)
        self._ending = asyncio.Event()
        most = settings.queue_rows + settings.max_request_rows
        self._channel = EngineChannel(
            max_rows=most, changed=self._on_change, metric_values=self._metric_values.snapshot
        )
        plane = _WorkerPlane(self._plane, self._channel)
        application = served_model_application(
            plane, model, settings, self._metric_values, log, metrics=self._metrics
        )
        self._server = HttpServer(application, limits=http_limits(settings))
        gauge(self._metric_values, "roundhouse_connections", lambda: self._server.connections)
        self._taking: set[asyncio.Task[None]] = set()

    async def serve(self, end: socket.socket, worker_socket: socket.socket) -> int:
        """Serve until the supervisor drains this worker or ends, and return the exit code."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self._channel, sock=end)
        await self._channel.state_received.wait()
        await self._server.start(None)
        worker_socket.setblocking(False)
        loop.add_reader(worker_socket.fileno(), self._take, worker_socket)
        self._channel.serve()
        await self._ending.wait()
        loop.remove_reader(worker_socket.fileno())
        self._take(worker_socket)
        await asyncio.gather(*self._taking, return_exceptions=True)
        await self._server.drain(
            LAST_SECONDS if self._channel.lost else self._settings.drain_seconds
        )
        self._channel.close()
        return SUPERVISOR_GONE if self._channel.lost else 0

    def _on_change(self, channel: EngineChannel) -> None:
        """Follow a new state of the supervisor."""
        if channel.state in (frames.OPENING, frames.READY):
            self._plane.open(channel)
        if channel.lost or channel.state == frames.DRAINING:
            self._plane.drain()
            self._ending.set()

    def _take(self, worker_socket: socket.socket) -> None:
        """Serve every connection that the supervisor has passed on."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection = receive_connection(worker_socket)
            except EOFError:  # the supervisor is gone; the channel reports it too
                loop.remove_reader(worker_socket.fileno())
                return
            except OSError as fault:
                self._log.report("connection_dropped", fault, stage="http", level="warning")
                continue
            if connection is None:
                return
            task = loop.create_task(self._server.take(connection))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)

    async def _metrics(self) -> bytes:
        """Return the metrics of the supervisor and every worker, summed."""
        return exposition(await self._channel.all_metric_values())


class _WorkerPlane:
    """A data plane that is ready only while the supervisor responds and every worker answers."""

    def __init__(self, plane: DataPlane, channel: EngineChannel) -> None:
        self._plane, self._channel = plane, channel
        self.signature, self.submit, self.submit_short = (
            plane.signature,
            plane.submit,
            plane.submit_short,
        )

    @property
    def ready(self) -> bool:
        """True when a request would be answered now, by whichever worker receives it."""
        return (
            self._channel.state == frames.READY and not self._channel.silent and self._plane.ready
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
