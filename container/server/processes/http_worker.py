"""One HTTP process before the engine's owner: `python -m container.server.processes.http_worker LINK
DOOR`, two inherited sockets.

Started by the owner, and never by hand. Exit codes: 0 drained; 1 the owner is gone; 3 the archive
cannot be read.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import NoReturn

import uvloop

from container.archive import EngineArchive
from container.server.data_plane.model import Model, count_truncated, model_of, plane_of
from container.server.data_plane.plane import DataPlane
from container.server.http.application import limits_of, model_answering
from container.server.http.server import HttpServer
from container.server.processes import frames
from container.server.processes.acceptor import handed
from container.server.processes.channel import Link
from container.server.settings import Settings, process_settings
from container.server.telemetry.failure_log import FailureLog, stderr
from container.server.telemetry.metric_values import Samples
from container.server.telemetry.metrics import exposition, gauge
from onboarding.manifest import MANIFEST_NAME, Manifest

OWNER_GONE, ARCHIVE = 1, 3
LAST_SECONDS = 1.0
"""How long clients may take to read that the owner is gone."""


def main(arguments: list[str]) -> int:
    """The exit code of one HTTP process."""
    # A terminal's Ctrl-C and a supervisor's SIGTERM reach the whole group; only the owner says when
    # fronts drain.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    end, door = (socket.socket(fileno=int(number)) for number in arguments)
    settings = process_settings()
    try:
        model = model_of(_archive(settings), settings, _no_engine)
    except Exception as fault:  # whatever a tokenizer's file makes its library raise
        print(
            f"An HTTP process cannot read the archive: {type(fault).__name__}: {fault}",
            file=sys.stderr,
            flush=True,
        )
        return ARCHIVE
    exit_code: int = uvloop.run(_serve(settings, model, end, door))
    return exit_code


def _archive(settings: Settings) -> EngineArchive:
    """The archive, whose every byte the owner has verified before it started this process."""
    manifest = Manifest.from_bytes((settings.model_dir / MANIFEST_NAME).read_bytes())
    return EngineArchive(root=settings.model_dir, manifest=manifest)


def _no_engine() -> NoReturn:
    raise RuntimeError("the engine is the owner's")


async def _serve(settings: Settings, model: Model, end: socket.socket, door: socket.socket) -> int:
    """Answers until the owner drains or ends."""
    log = FailureLog(stderr, model=model.name)
    try:
        return await Front(settings=settings, model=model, log=log).serve(end, door)
    finally:
        log.close()


class Front:
    """The HTTP server of one process, whose engine is the owner's."""

    def __init__(self, *, settings: Settings, model: Model, log: FailureLog) -> None:
        self._settings, self._plane, self._log = settings, plane_of(model, settings), log
        self._samples = Samples()
        count_truncated(self._plane, model, self._samples)
        self._ending = asyncio.Event()
        most = settings.queue_rows + settings.max_request_rows
        self._link = Link(max_rows=most, changed=self._changed, samples=self._samples.snapshot)
        plane = _OneOfSeveral(self._plane, self._link)
        answering = model_answering(
            plane, model, settings, self._samples, log, metrics=self._metrics
        )
        self._server = HttpServer(answering, limits=limits_of(settings))
        gauge(self._samples, "roundhouse_connections", lambda: self._server.connections)
        self._taking: set[asyncio.Task[None]] = set()

    async def serve(self, end: socket.socket, door: socket.socket) -> int:
        """The process' exit code, once the owner drains or ends."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self._link, sock=end)
        await self._link.heard.wait()
        await self._server.start(None)
        door.setblocking(False)
        loop.add_reader(door.fileno(), self._take, door)
        self._link.serve()
        await self._ending.wait()
        loop.remove_reader(door.fileno())
        self._take(door)
        await asyncio.gather(*self._taking, return_exceptions=True)
        await self._server.drain(LAST_SECONDS if self._link.lost else self._settings.drain_seconds)
        self._link.close()
        return OWNER_GONE if self._link.lost else 0

    def _changed(self, link: Link) -> None:
        """The owner is something else than before, or gone."""
        if link.state in (frames.OPENING, frames.READY):
            self._plane.open(link)
        if link.lost or link.state == frames.DRAINING:
            self._plane.drain()
            self._ending.set()

    def _take(self, door: socket.socket) -> None:
        """Serves every connection that lies at the door."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection = handed(door)
            except EOFError:  # the owner is gone, as the link says too
                loop.remove_reader(door.fileno())
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
        """Of the owner and every HTTP process, summed."""
        return exposition(await self._link.samples_of_all())


class _OneOfSeveral:
    """A data plane that is healthy once the owner says that every process answers, and while it
    says anything.
    """

    def __init__(self, plane: DataPlane, link: Link) -> None:
        self._plane, self._link = plane, link
        self.signature, self.submit, self.submit_short = (
            plane.signature,
            plane.submit,
            plane.submit_short,
        )

    @property
    def ready(self) -> bool:
        """True when a request would be answered now, by whichever process it comes to."""
        return self._link.state == frames.READY and not self._link.silent and self._plane.ready


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
