"""Answers that are still being written: a container's body, part by part."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from local_cloud.containers.server_client import OpenResponse
from local_cloud.protocol.event_stream import payload_part, stream_exception, uneven_parts


@dataclass(kw_only=True)
class StreamedReply:
    """Status, headers and parts; `leave` ends it early, from any thread.

    `held` is what must not end before the last part was read: the instance's count of requests.
    """

    status: int
    headers: dict[str, str]
    parts: Iterator[bytes]
    leave: Callable[[], None]
    held: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Leave the container, and let go of what is held."""
        self.leave()
        self.held.close()


@dataclass(kw_only=True)
class Progress:
    """How far a stream came: when its first part arrived, and what broke it."""

    begun: float
    first: float | None = None
    broken: Exception | None = None

    def parts(self, response: OpenResponse) -> Iterator[bytes]:
        """Yield a response's parts; what breaks it ends them."""
        try:
            for chunk in response.chunks():
                if self.first is None:
                    self.first = time.monotonic()
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            self.broken = error


def event_stream(progress: Progress, response: OpenResponse) -> Iterator[bytes]:
    """Yield a response as SageMaker's event stream, with an exception where it broke off."""
    for chunk in progress.parts(response):
        yield from map(payload_part, uneven_parts(chunk))
    error = progress.broken
    if isinstance(error, TimeoutError):
        message = "Your invocation timed out while waiting for a response from container primary."
        yield stream_exception(
            "ModelStreamError", Message=message, ErrorCode="ModelInvocationTimeExceeded"
        )
    elif error is not None:
        message = f"The container's stream ended before its answer did ({error!r})."
        yield stream_exception("ModelStreamError", Message=message, ErrorCode="StreamBroken")
