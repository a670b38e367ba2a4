"""The end of a server: by a signal that comes too early or again, without a reader of its words,
with an engine that never
comes back. Nothing ends a thread that is stuck in one, but its process can."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
LAST_SECONDS = 0.5
"""How long threads may take to end once all is answered or given up."""


async def without_waiting(serving: Coroutine[Any, Any, T]) -> T:
    """What serves, on an event loop that does not wait for the threads of its executor when it
    closes.
    """
    loop, executor = (
        asyncio.get_running_loop(),
        ThreadPoolExecutor(thread_name_prefix="beside the event loop"),
    )
    loop.set_default_executor(executor)
    try:
        return await serving
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        loop.set_default_executor(ThreadPoolExecutor())


def end_on_termination() -> None:
    """Until the event loop listens for it, SIGTERM ends this process at once, with 0.

    A container's first process would not hear it: the kernel gives process 1 only those signals
    that it has a handler for.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))


def hear_no_more() -> None:
    """SIGTERM and SIGINT change nothing any more: all is answered, and the exit code stands."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def open_standard_streams() -> None:
    """Has each closed one lead nowhere, before a socket gets its number and the failure log writes
    to a client.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one


def end(code: int) -> NoReturn:
    """Ends this process, waiting for its threads no longer than LAST_SECONDS, and for no reader of
    its words.
    """
    unread = False
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # it is when it was closed from the start
                stream.flush()
        except (OSError, ValueError):
            unread = True
    if unread or not _threads_end():
        os._exit(code)
    sys.exit(code)


def _threads_end() -> bool:
    """Whether every thread that an interpreter waits for ends in time."""
    until = time.monotonic() + LAST_SECONDS
    threads = [
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    ]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
