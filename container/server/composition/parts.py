"""What every composition needs: signals, limits, the place, and the faults that end a server before
it serves.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from container.server.http.limits import HttpLimits
from container.server.settings import Settings
from container.server.wording import first_line

Say = Callable[[str], object]
T = TypeVar("T")


class Unloadable(Exception):
    """The engine cannot be loaded; the message is the reason."""


class StoppedLoading(Exception):
    """A signal came while the engine was loading, in a thread that nothing can end."""


def stop_on_signals() -> asyncio.Event:
    """Set by SIGTERM and SIGINT; a second one changes nothing."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def unless_stopped(loading: Coroutine[Any, Any, T], stop: asyncio.Event) -> T:
    """What loading comes to.

    Raises StoppedLoading, and Unloadable with the first line of whatever loading raises.
    """
    coming, stopping = asyncio.ensure_future(loading), asyncio.ensure_future(stop.wait())
    await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not coming.done():
        raise StoppedLoading
    return await loaded(coming)


async def loaded(coming: Awaitable[T]) -> T:
    """What loading comes to. Raises Unloadable."""
    try:
        return await coming
    except Exception as fault:
        raise Unloadable(first_line(fault)) from fault


def limits_of(settings: Settings) -> HttpLimits:
    """What HTTP puts up with."""
    return HttpLimits(
        body_bytes=settings.max_body_bytes,
        request_seconds=settings.request_seconds,
        max_connections=settings.max_connections,
    )


def place_of(settings: Settings) -> str:
    """Address and port."""
    address = f"[{settings.address}]" if ":" in settings.address else settings.address
    return f"{address}:{settings.port}"
