"""One HTTP process before the engine's owner: `python -m container.server.processes.front LINK DOOR`, two inherited sockets.

Started by the owner, and never by hand. Exit codes: 0 drained; 1 the owner is gone; 3 the archive cannot be read.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys

import uvloop

from container.archive import EngineArchive
from container.server.http.limits import HttpLimits
from container.server.http.message import Answering
from container.server.http.routes import answering
from container.server.http.server import HttpServer
from container.server.processes import frames
from container.server.processes.link import Link
from container.server.processes.porter import handed
from container.server.serving.data_plane import DataPlane
from container.server.serving.failure_log import FailureLog, stderr
from container.server.serving.metrics import RequestMetrics, exposition, gauge
from container.server.serving.samples import Samples
from container.server.serving.served_model import encoder_of, platform_of, signature_of
from container.server.settings import Settings, process_settings
from onboarding.manifest import MANIFEST_NAME, Manifest

OWNER_GONE, ARCHIVE = 1, 3
LAST_SECONDS = 1.0
"""How long clients may take to read that the owner is gone."""


def main(arguments: list[str]) -> int:
    """The exit code of one HTTP process."""
    # A terminal's Ctrl-C and a supervisor's SIGTERM reach the whole group; only the owner says when fronts drain.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    end, door = (socket.socket(fileno=int(number)) for number in arguments)
    settings = process_settings()
    try:
        archive = _archive(settings)
        plane = _plane(archive, settings)
    except Exception as fault:  # whatever a tokenizer's file makes its library raise
        print(f"An HTTP process cannot read the archive: {type(fault).__name__}: {fault}", file=sys.stderr, flush=True)
        return ARCHIVE
    exit_code: int = uvloop.run(_serve(settings, archive.manifest, plane, end, door))
    return exit_code


def _archive(settings: Settings) -> EngineArchive:
    """The archive, whose every byte the owner has verified before it started this process."""
    manifest = Manifest.from_bytes((settings.model_dir / MANIFEST_NAME).read_bytes())
    return EngineArchive(root=settings.model_dir, manifest=manifest)


def _plane(archive: EngineArchive, settings: Settings) -> DataPlane:
    return DataPlane(
        signature=signature_of(archive.manifest),
        encoder=encoder_of(archive),
        max_request_rows=settings.max_request_rows,
        deadline_seconds=settings.deadline_seconds,
    )


async def _serve(settings: Settings, manifest: Manifest, plane: DataPlane, end: socket.socket, door: socket.socket) -> int:
    """Answers until the owner drains or ends."""
    log = FailureLog(stderr, model=manifest.model)
    front = Front(settings=settings, manifest=manifest, plane=plane, log=log)
    try:
        return await front.serve(end, door)
    finally:
        log.close()


class Front:
    """The HTTP server of one process, whose engine is the owner's."""

    def __init__(self, *, settings: Settings, manifest: Manifest, plane: DataPlane, log: FailureLog) -> None:
        self._settings, self._manifest, self._plane, self._log = settings, manifest, plane, log
        self._samples = Samples()
        self._ending = asyncio.Event()
        most = settings.queue_rows + settings.max_request_rows
        self._link = Link(max_rows=most, changed=self._changed, samples=self._samples.snapshot)
        self._server = HttpServer(self._answering(), limits=_limits(settings))
        gauge(self._samples, "roundhouse_connections", lambda: self._server.connections)
        self._taking: set[asyncio.Task[None]] = set()

    async def serve(self, end: socket.socket, door: socket.socket) -> int:
        """The process' exit code, once the owner drains or ends."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self._link, sock=end)
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
        """The owner has said something about itself, or is gone."""
        if link.state == frames.READY:
            self._plane.open(link)
        if link.lost or link.state == frames.DRAINING:
            self._plane.drain()
            self._ending.set()

    def _take(self, door: socket.socket) -> None:
        """Serves every connection that lies at the door."""
        loop = asyncio.get_running_loop()
        try:
            while (connection := handed(door)) is not None:
                task = loop.create_task(self._server.take(connection))
                self._taking.add(task)
                task.add_done_callback(self._taking.discard)
        except EOFError:  # the owner is gone, as the link says too
            loop.remove_reader(door.fileno())

    def _answering(self) -> Answering:
        settings = self._settings
        return answering(
            self._plane,
            max_body_bytes=settings.max_body_bytes,
            deadline_seconds=settings.deadline_seconds,
            platform=platform_of(self._manifest),
            metrics=self._metrics,
            failed=lambda fault: self._log.report("request_failed", fault, stage="http", status=500),
            observer=RequestMetrics(self._samples, model=self._manifest.model, log=self._log),
        )

    async def _metrics(self) -> bytes:
        """Of the owner and every HTTP process, summed."""
        return exposition(await self._link.samples_of_all())


def _limits(settings: Settings) -> HttpLimits:
    return HttpLimits(
        body_bytes=settings.max_body_bytes, request_seconds=settings.request_seconds, max_connections=settings.max_connections
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
