"""Replies that are sent part by part through MiniStack's server."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import enum
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from ministack.core.responses import StreamingResponse

logger = logging.getLogger("roundhouse.streams")
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class End(enum.Enum):
    """How a body ended."""

    WHOLE = enum.auto()
    BROKEN = enum.auto()


def streaming_response(parts: Iterator[bytes], close: Callable[[], None]) -> Any:
    """Return MiniStack's marker of a body whose parts are read in a thread of their own.

    `close` ends the reading from any thread: once the caller has left, and at last in any case.
    """

    async def run(send: Send, receive: Receive) -> None:
        await send_parts(parts, close, send, receive)

    return StreamingResponse(run)


async def send_parts(
    parts: Iterator[bytes], close: Callable[[], None], send: Send, receive: Receive
) -> None:
    """Send parts as they come; a body that breaks off is left without its end."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes | End]()

    def put(item: bytes | End) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended with the cloud.
            loop.call_soon_threadsafe(queue.put_nowait, item)

    def read() -> None:
        end = End.BROKEN
        try:
            for part in parts:
                put(part)
            end = End.WHOLE
        except Exception as error:
            logger.info("a stream broke off: %r", error)
        finally:
            close()
            put(end)

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        close()
        queue.put_nowait(End.BROKEN)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(read,), name="stream", daemon=True).start()
    watching = asyncio.ensure_future(watch())
    try:
        while isinstance(item := await queue.get(), bytes):
            await send({"type": "http.response.body", "body": item, "more_body": True})
        if item is End.WHOLE:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        watching.cancel()
