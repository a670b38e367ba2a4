"""Replies that are sent part by part through MiniStack's server."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from ministack.core.responses import StreamingResponse

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


def streaming_response(parts: Iterator[bytes], close: Callable[[], None]) -> Any:
    """Return MiniStack's marker of a body whose parts are read in a thread of their own.

    `close` ends the reading from any thread: once the caller has left, and at last in any case.
    """

    async def send_parts(send: Send, receive: Receive) -> None:
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()

        def put(item: bytes | None) -> None:
            with contextlib.suppress(RuntimeError):  # The loop has ended with the cloud.
                loop.call_soon_threadsafe(queue.put_nowait, item)

        def read() -> None:
            try:
                for part in parts:
                    put(part)
            finally:
                close()
                put(None)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            close()
            queue.put_nowait(None)

        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(read,), name="stream", daemon=True).start()
        watching = asyncio.ensure_future(watch())
        try:
            while (part := await queue.get()) is not None:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watching.cancel()

    return StreamingResponse(send_parts)
