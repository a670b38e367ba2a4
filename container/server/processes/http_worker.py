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
from container.server.http.application import model_server
from container.server.process import bound_free_memory
from container.server.processes import frames
from container.server.processes.acceptor import receive_connection
from container.server.processes.channel import EngineChannel
from container.server.settings import Settings, process_settings
from container.server.telemetry.failure_log import FailureLog, stderr
from container.server.telemetry.metric_values import MetricValues
from container.server.telemetry.metrics import exposition
from onboarding.manifest import MANIFEST_NAME, Manifest

SUPERVISOR_GONE, ARCHIVE = 1, 3
LAST_SECONDS = 1.0
"""Seconds for clients to read their answers once the supervisor is gone."""


def main(arguments: list[str]) -> int:
    """Run one HTTP worker and return its exit code."""
    # Ctrl-C and SIGTERM reach the whole process group, but only the supervisor drains workers.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    bound_free_memory()
    end, worker_socket = (socket.socket(fileno=int(number)) for number in arguments)
    settings = process_settings()
    try:  # the supervisor verified the archive before it started this process
        manifest = Manifest.from_bytes((settings.model_dir / MANIFEST_NAME).read_bytes())
        archive = EngineArchive(root=settings.model_dir, manifest=manifest)
        model = servable_model(archive, settings, _no_engine)
    except Exception as fault:  # whatever a tokenizer's file makes its library raise
        reason = f"{type(fault).__name__}: {fault}"
        print(f"An HTTP process cannot read the archive: {reason}", file=sys.stderr, flush=True)
        return ARCHIVE
    log = FailureLog(stderr, model=model.name)

    async def serve() -> int:
        return await HttpWorker(settings=settings, model=model, log=log).serve(end, worker_socket)

    try:
        exit_code: int = uvloop.run(serve())
        return exit_code
    finally:
        log.close()


def _no_engine() -> NoReturn:
    raise RuntimeError("an HTTP worker has no engine")


class HttpWorker:
    """The HTTP server of one process; the supervisor has its engine."""

    def __init__(self, *, settings: Settings, model: Model, log: FailureLog) -> None:
        self._settings, self._plane, self._log = settings, data_plane_of(model, settings), log
        metric_values = MetricValues()
        count_truncated(self._plane, model, metric_values)
        self._ending = asyncio.Event()
        self._channel = EngineChannel(
            max_rows=settings.queue_rows + settings.max_request_rows,
            changed=self._on_change,
            metric_values=metric_values.snapshot,
        )
        self._server = model_server(
            self._plane,
            model,
            settings,
            metric_values,
            log,
            metrics=self._metrics,
            is_ready=self._is_ready,
        )
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
        return exposition(await self._channel.all_metric_values())

    def _is_ready(self) -> bool:
        """Return True when whichever worker receives a request would answer it now."""
        channel = self._channel
        return channel.state == frames.READY and not channel.silent and self._plane.ready


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
