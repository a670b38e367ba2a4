"""The end of a server whose engine may never come back: nothing ends a thread that is stuck in one, but its process can."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

LAST_SECONDS = 0.5
"""How long threads may take to end once all is answered or given up."""


async def to_the_end(serving: Coroutine[Any, Any, int | None], closing: Callable[[], object]) -> int:
    """The exit code of what serves; `closing` ends its log. Ends the process here when threads are left that do not end."""
    # asyncio's own way to end its executor waits for every thread, without end.
    executor = ThreadPoolExecutor(thread_name_prefix="beside the event loop")
    asyncio.get_running_loop().set_default_executor(executor)
    served = await serving
    code = 0 if served is None else served
    executor.shutdown(wait=False, cancel_futures=True)
    if not _threads_end():
        closing()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _threads_end() -> bool:
    """Whether every thread that an interpreter waits for ends in time."""
    until = time.monotonic() + LAST_SECONDS
    threads = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
