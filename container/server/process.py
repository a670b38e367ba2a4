"""This process: its signals, file descriptors, interpreter, memory and end."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from container.server.settings import Settings, available_cores, bind_address
from container.server.types import first_line

T = TypeVar("T")
SETTING = 2
"""The exit code of a server whose settings or arguments are wrong."""
LAST_SECONDS = 0.5
"""How long threads may take to end once all is answered or given up."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""mallopt's numbers of its parameters (malloc.h)."""
FREED_BYTES = 1 << 20
"""What is freed goes back to the system at once: larger pieces, and so much at a heap's end."""
MALLOC_VARIABLES = {f"MALLOC_{name}_THRESHOLD_": str(FREED_BYTES) for name in ("MMAP", "TRIM")}
"""The same for a process that is started, as glibc reads it."""


async def without_executor_wait(serving: Coroutine[Any, Any, T]) -> T:
    """Await `serving` on an event loop that closes without waiting for its executor's threads."""
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(available_cores(), "beside the event loop")
    loop.set_default_executor(executor)
    try:
        return await serving
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        loop.set_default_executor(ThreadPoolExecutor())


def ignore_stop_signals() -> None:
    """Ignore SIGTERM and SIGINT: every request is answered, and the exit code is decided."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def end(code: int) -> NoReturn:
    """End this process; its threads get LAST_SECONDS, and nobody need read its output."""
    until, others = time.monotonic() + LAST_SECONDS, set(threading.enumerate())
    for thread in others - {threading.main_thread()}:
        if not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


MOST_DESCRIPTORS = 65_536


def raise_descriptor_limit() -> None:
    """Raise the file descriptor limit of this process and its children as far as it may go."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


SWITCH_SECONDS = 5e-6
YOUNG_OBJECTS = 10_000


def tune_interpreter() -> None:
    """Shorten the interpreter's switch interval, and let its collector see young objects only.

    A waiting thread asks for the interpreter lock after the interval, and starts again whenever the
    lock was free for a moment, as it is in every turn of an event loop: with Python's own 5 ms a
    busy loop left an engine's thread 1 batch/s of 790.

    Objects that exist now stay, so the collector need not visit them; requests create next to no
    cycles, and a collection every 700 objects cost 4 % of a small request.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def trim_memory() -> None:
    """Return memory that was freed to the system: glibc's allocator keeps it for itself.

    A text of 6 MB left 1.9 GB behind. Elsewhere than in glibc nothing happens.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def bound_free_memory() -> None:
    """Have glibc keep little freed memory: its thresholds stay where they are set.

    By default a large body that is freed raises them to 32 and 64 MiB: hostile bodies left 45 MB
    behind in the server before Triton, and 32 in the Python server. Elsewhere than in glibc nothing
    happens.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            mallopt(parameter, FREED_BYTES)


class LoadFault(Exception):
    """The engine cannot be loaded; the message is the reason."""


class StoppedWhileLoading(Exception):
    """A signal came while the engine was loading, in a thread that nothing can end."""


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets; further signals change nothing."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def happens_within(event: asyncio.Event, seconds: float) -> bool:
    """Return True when an event happens in time."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


async def load_unless_stopped(loading: Coroutine[Any, Any, T], stop: asyncio.Event) -> T:
    """Return what `loading` returns. Raises StoppedWhileLoading and LoadFault."""
    task, stopping = asyncio.ensure_future(loading), asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not task.done():
        raise StoppedWhileLoading
    try:
        return await task
    except Exception as fault:
        raise LoadFault(first_line(fault)) from fault


class CannotListen(Exception):
    """The port or the address cannot be used; the message is the whole sentence."""


def listening_socket(settings: Settings) -> socket.socket:
    """Return the listening socket, bound before anything is loaded: a taken port fails first."""
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    try:
        return socket.create_server((settings.address, settings.port), family=family, backlog=2048)
    except (UnicodeError, TypeError) as fault:  # no name that could be looked up
        excerpt = settings.address.encode(errors="backslashreplace").decode()[:60]
        raise CannotListen(
            f"Cannot listen on {excerpt!r}, which is no address; set ROUNDHOUSE_BIND_ADDRESS to "
            "0.0.0.0."
        ) from fault
    except OSError as fault:
        reason = str(fault.strerror).partition(" (while")[0]
        if fault.errno in (errno.EADDRINUSE, errno.EACCES):
            remedy = "SAGEMAKER_BIND_TO_PORT to a free port"
        else:
            remedy = "ROUNDHOUSE_BIND_ADDRESS to one of this machine's"
        raise CannotListen(
            f"Cannot listen on {bind_address(settings)} ({reason}); set {remedy}."
        ) from fault


def say(sentence: str) -> None:
    """Print a sentence on standard error, unless that is closed."""
    with suppress(OSError):
        print(sentence, file=sys.stderr, flush=True)


def refuse(code: int, sentence: str) -> int:
    """Say why this process ends with an exit code, and return the code."""
    say(sentence)
    return code
