"""What it takes to hold a runtime's engine: seconds until it could answer, and the memory it had
taken once it did.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from engine_build.machine import resident_mib
from engine_build.runtimes.device_memory import used_mib
from engine_build.samples.feed import Array, Feed


class Running(Protocol):
    """A network, plan or module that is loaded."""

    def rows(self, feed: Feed) -> Array:
        """float32 [rows, values]."""
        ...


Kind = TypeVar("Kind", bound=Running)


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What one engine added to a process and to its GPU."""

    load_seconds: float
    host_memory_mib: float
    device_memory_mib: float | None = None


def held(
    load: Callable[[], Kind], feed: Feed, *, device_mib: Callable[[], float | None] = used_mib
) -> tuple[Kind, Holding]:
    """Loads something and runs it once.

    Memory is exact only in a process that does nothing else.
    """
    device, host, begin = device_mib(), resident_mib(), time.monotonic()
    running = load()
    seconds = time.monotonic() - begin
    running.rows(feed)
    after = device_mib()
    return running, Holding(
        load_seconds=round(seconds, 3),
        host_memory_mib=round(max(0.0, resident_mib() - host), 1),
        device_memory_mib=None
        if device is None or after is None
        else round(max(0.0, after - device), 1),
    )
