"""Starts the server behind this one, watches both, and ends both.

Exit codes: 0 drained and stopped; 2 a setting is wrong; 4 the port cannot be used or the command
cannot be started; 1 where a signal ended the server behind; else its own, or its backend's.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
from abc import ABC, abstractmethod
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, ClassVar

from container.server.http.messages import Application, ErrorBody, HttpLimits, error_body
from container.server.http.server import HttpServer
from container.server.process import (
    SETTING,
    CannotListen,
    ignore_stop_signals,
    listening_socket,
    raise_descriptor_limit,
    refuse,
    say,
    stop_event,
    tune_interpreter,
    without_executor_wait,
)
from container.server.settings import Settings, SettingsFault, bind_address, process_settings
from container.server.telemetry.failure_log import FailureLog, stderr
from container.server.upstream import Upstream

COMMAND, KILLED = 4, 1
PR_SET_PDEATHSIG = 1
PRCTL: Any = getattr(ctypes.CDLL(None), "prctl", None)
"""Of libc, looked up here: after a fork of several threads little may be done."""


class Backend(ABC):
    """A server behind this one, and the application that answers by asking it."""

    name: ClassVar[str]
    """Begins the sentences about it."""
    stop_seconds: ClassVar[float]
    """From SIGTERM to SIGKILL."""
    ended_drain_seconds: ClassVar[float]
    """Longest that requests in flight get where the server behind has ended."""
    is_session: ClassVar[bool] = False
    """Whether its processes are a session of their own: no signal to our group reaches it, and it
    ends as a whole.
    """
    error_body: ErrorBody = staticmethod(error_body)
    memory_full: Callable[[], object] = staticmethod(lambda: None)
    """Records a request that the limit of all bodies refuses."""
    application: Application
    limits: HttpLimits
    command: Sequence[str]
    environment: Mapping[str, str]
    upstreams: Sequence[Upstream]
    """The connections to it."""
    pid = 0
    """Of its first process, once it is started."""

    @abstractmethod
    async def watch(self) -> int:
        """Watch its health; return the exit code where both servers must end."""

    @abstractmethod
    def refuse_all(self, reason: str) -> None:
        """Answer every request by 503 from now on: it has ended."""

    async def drain(self, server: HttpServer, seconds: float) -> None:
        """Let what is in flight end."""
        await server.drain(seconds)


BackendOf = Callable[[Sequence[str], Settings, FailureLog], Backend]
"""Returns the backend of a command; called on the event loop. Raises SettingsFault."""


def run_backend(arguments: Sequence[str], words: str, backend_of: BackendOf) -> int:
    """Run a server before that of a command, and return the exit code.

    The command, which `words` describe, follows the first of the arguments.
    """
    import uvloop

    command = arguments[1:]
    if not command:
        return refuse(SETTING, f"No command; the arguments are {words}.")
    log = FailureLog(stderr)
    try:
        settings = process_settings()
        with listening_socket(settings) as listener:
            serving = _serve(lambda: backend_of(command, settings, log), settings, listener)
            code: int = uvloop.run(without_executor_wait(serving))
            return code
    except SettingsFault as fault:
        return refuse(SETTING, str(fault))
    except CannotListen as fault:
        return refuse(COMMAND, str(fault))
    except OSError as fault:
        return refuse(COMMAND, f"{command[0]} cannot be started ({fault.strerror}).")
    finally:
        ignore_stop_signals()
        log.close()


async def _serve(
    backend_of: Callable[[], Backend], settings: Settings, listener: socket.socket
) -> int:
    """Serve until a signal, or the end of the server behind, and return the exit code."""
    backend = backend_of()
    raise_descriptor_limit()
    stop = stop_event()
    process = await asyncio.create_subprocess_exec(
        *backend.command,
        env=backend.environment,
        start_new_session=backend.is_session,
        preexec_fn=_end_with_parent,
    )
    backend.pid = process.pid
    tune_interpreter()
    server = HttpServer(
        backend.application,
        limits=backend.limits,
        error_body=backend.error_body,
        memory_full=backend.memory_full,
    )
    try:
        await server.start(listener)
        say(f"{backend.name} gets the requests that {bind_address(settings)} takes and checks.")
        code = await _watch(backend, process, stop)
        await backend.drain(server, backend.ended_drain_seconds if code else settings.drain_seconds)
    finally:
        for upstream in backend.upstreams:
            upstream.close()
        await end_process(process, backend.stop_seconds, group=backend.is_session)
    return code


async def _watch(backend: Backend, process: Process, stop: asyncio.Event) -> int:
    """Return the exit code once something ends. Raises what ends it."""
    watching = asyncio.ensure_future(backend.watch())
    waits = [watching, *map(asyncio.ensure_future, (process.wait(), stop.wait()))]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    for wait in done:
        wait.result()
    if stop.is_set():
        return 0
    status = process.returncode
    if status is None:
        return watching.result()
    say(f"{backend.name} ended with status {status}, so this server ends.")
    backend.refuse_all(f"{backend.name} has ended; try again in a second.")
    return status if status > 0 else KILLED


def _end_with_parent() -> None:
    """Have the kernel end the server behind when this process is killed; elsewhere nothing."""
    if PRCTL is not None:
        PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)


def free_ports(count: int) -> tuple[int, ...]:
    """Return different ports of the loopback device that nobody listens on."""
    with ExitStack() as open_sockets:
        listeners = [
            open_sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return tuple(int(listener.getsockname()[1]) for listener in listeners)


async def end_process(process: Process, seconds: float, *, group: bool = False) -> None:
    """End a process, or its whole group, by force when it does not end in time."""
    for number, limit in ((signal.SIGTERM, seconds), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            if group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), limit)
