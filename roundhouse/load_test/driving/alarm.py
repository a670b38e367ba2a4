"""Wakes an event loop at a moment, to some ten microseconds where Linux's timerfd is there, else to
a millisecond.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable

NANO = 1_000_000_000
NON_BLOCKING = 0o4000 | 0o2000000
MONOTONIC = 1
ABSOLUTE = 1
LIBC = ctypes.CDLL(None)


class Alarm:
    """One alarm that calls `wake`.

    An event loop's own timers are up to a millisecond late, which is a short answer's time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop, self._wake = loop, wake
        self._file = _timer_file()
        self._handle: asyncio.TimerHandle | None = None
        if self._file is not None:
            loop.add_reader(self._file, self._rung)

    @property
    def precise(self) -> bool:
        """Whether the kernel's timer is used."""
        return self._file is not None

    def set(self, moment: float) -> None:
        """Rings once, at a moment of the monotonic clock; a moment that is past rings at once."""
        if self._file is None:
            self._handle = self._loop.call_later(max(0.0, moment - time.monotonic()), self._wake)
            return
        nanoseconds = max(1, int(moment * NANO))
        # itimerspec: no interval, then the absolute moment.
        value = (ctypes.c_long * 4)(0, 0, nanoseconds // NANO, nanoseconds % NANO)
        LIBC.timerfd_settime(self._file, ABSOLUTE, ctypes.byref(value), None)

    def close(self) -> None:
        """Never rings again."""
        if self._handle is not None:
            self._handle.cancel()
        if self._file is not None:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = None

    def _rung(self) -> None:
        if self._file is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self._file, 8)
            self._wake()


def _timer_file() -> int | None:
    """Python has os.timerfd_create from 3.13 on."""
    if sys.platform != "linux":
        return None
    create = getattr(LIBC, "timerfd_create", None)
    number = -1 if create is None else int(create(MONOTONIC, NON_BLOCKING))
    return None if number < 0 else number
