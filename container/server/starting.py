"""Starts the Python server by its environment.

Exit codes: 0 drained and stopped; 2 a setting is wrong; 3 the archive is refused; 4 the engine or
the port cannot be used;
5 its HTTP processes die all the time.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

from container.archive import ArchiveRefused, EngineArchive, verified_archive
from container.server.composition.many_models import serve_many_models
from container.server.composition.one_process import serve_one_process
from container.server.composition.parts import StoppedLoading, Unloadable, place_of
from container.server.composition.several_processes import serve_several_processes
from container.server.descriptors import allow_connections
from container.server.ending import hear_no_more, without_waiting
from container.server.engines.engine import Engine
from container.server.engines.opening import open_engine, running
from container.server.processes.owner import FrontSpec
from container.server.serving.failure_log import FailureLog, stderr
from container.server.serving.model import Model, model_of
from container.server.settings import (
    Settings,
    SettingsFault,
    available_cores,
    process_environment,
    process_settings,
)

SETTING, ARCHIVE, ENGINE = 2, 3, 4
Opened = Callable[[EngineArchive, Settings], Engine]


class CannotListen(Exception):
    """The port or the address cannot be had; the message is the whole sentence."""


def main(arguments: list[str], opened: Opened | None = None) -> int:
    """The exit code of the whole server; `opened` opens engines, by default as their manifests say."""
    if arguments not in ([], ["serve"]):
        return _refused(
            SETTING,
            f"Unknown arguments {arguments}; use `serve` or none, and set the server by environment variables.",
        )
    try:
        settings = process_settings()
        allow_connections(settings.max_connections)
        with _listener(settings) as listener:
            return _served(settings, listener, _engine if opened is None else opened)
    except CannotListen as fault:
        return _refused(ENGINE, str(fault))
    except SettingsFault as fault:
        return _refused(SETTING, str(fault))
    except ArchiveRefused as fault:
        return _refused(ARCHIVE, str(fault))
    except Unloadable as fault:
        return _refused(ENGINE, str(fault))
    except OSError as fault:
        return _refused(
            ARCHIVE,
            f"Refused: {fault.filename or settings.model_dir} cannot be read ({fault.strerror}).",
        )


def _served(settings: Settings, listener: socket.socket, opened: Opened) -> int:
    here = running()
    if settings.multi_model:

        def verify(root: Path) -> EngineArchive:
            return verified_archive(root, running=here, manifest_sha256=None)

        log = FailureLog(stderr)
        serving = serve_many_models(
            settings,
            listener,
            verify=verify,
            load=lambda archive: opened(archive, settings),
            log=log,
            say=_say,
        )
        return _run(serving, log)
    archive = verified_archive(
        settings.model_dir, running=here, manifest_sha256=settings.manifest_sha256
    )
    model, log = _model(archive, settings, opened), FailureLog(stderr, model=archive.manifest.model)
    try:
        if settings.http_processes == 1:
            return _run(serve_one_process(settings, model, listener, log=log, say=_say), log)
        fronts = FrontSpec(count=settings.http_processes, environment=process_environment())
        return _run(
            serve_several_processes(settings, model, listener, fronts, log=log, say=_say), log
        )
    except Unloadable as fault:
        raise Unloadable(
            f"The engine {archive.manifest.engine_file} cannot be loaded: {fault}"
        ) from fault


def _run(serving: Coroutine[Any, Any, int | None], log: FailureLog) -> int:
    """The exit code of what runs on the event loop."""
    try:
        code: int | None = uvloop.run(without_waiting(serving))
    except StoppedLoading:
        _say("Stopped while the engine was loading.")
        return 0
    finally:
        hear_no_more()
        log.close()
    return 0 if code is None else code


def _model(archive: EngineArchive, settings: Settings, opened: Opened) -> Model:
    try:
        return model_of(archive, settings, lambda: opened(archive, settings))
    except Exception as fault:
        raise Unloadable(
            f"The tokenizer {archive.tokenizer} cannot be loaded ({fault}); build the engine again."
        ) from fault


def _engine(archive: EngineArchive, settings: Settings) -> Engine:
    return open_engine(
        archive, slots=settings.slots, threads=settings.threads, cores=available_cores()
    )


def _listener(settings: Settings) -> socket.socket:
    """The listening socket, bound before anything is loaded so that a taken port is told at once."""
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    try:
        return socket.create_server((settings.address, settings.port), family=family, backlog=2048)
    except (UnicodeError, TypeError) as fault:  # no name that could be looked up
        shown = settings.address.encode(errors="backslashreplace").decode()[:60]
        raise CannotListen(
            f"Cannot listen on {shown!r}, which is no address; set ROUNDHOUSE_BIND_ADDRESS to 0.0.0.0."
        ) from fault
    except OSError as fault:
        reason = str(fault.strerror).partition(" (while")[0]
        is_about_port = fault.errno in (errno.EADDRINUSE, errno.EACCES)
        remedy = (
            "SAGEMAKER_BIND_TO_PORT to a free port"
            if is_about_port
            else "ROUNDHOUSE_BIND_ADDRESS to one of this machine's"
        )
        raise CannotListen(
            f"Cannot listen on {place_of(settings)} ({reason}); set {remedy}."
        ) from fault


def _say(sentence: str) -> None:
    with suppress(OSError):  # nobody reads it, and the server serves all the same
        print(sentence, flush=True)


def _refused(code: int, sentence: str) -> int:
    with suppress(OSError):
        print(sentence, file=sys.stderr, flush=True)
    return code
