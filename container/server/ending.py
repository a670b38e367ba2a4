"""The end of a server whose engine may never come back: nothing ends a thread that is stuck in one, but its process can."""

from __future__ import annotations

import asyncio
import os
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
    """What serves, on an event loop that does not wait for the threads of its executor when it closes."""
    loop, executor = asyncio.get_running_loop(), ThreadPoolExecutor(thread_name_prefix="beside the event loop")
    loop.set_default_executor(executor)
    try:
        return await serving
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        loop.set_default_executor(ThreadPoolExecutor())


def end(code: int) -> NoReturn:
    """Ends this process, waiting for its threads no longer than LAST_SECONDS."""
    sys.stdout.flush()
    sys.stderr.flush()
    if not _threads_end():
        os._exit(code)
    sys.exit(code)


def _threads_end() -> bool:
    """Whether every thread that an interpreter waits for ends in time."""
    until = time.monotonic() + LAST_SECONDS
    threads = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
