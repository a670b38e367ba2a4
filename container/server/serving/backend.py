"""Whatever answers rows: the batcher before the engine, or the way to the process that has it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from container.server.types import Arrays


class Backend(Protocol):
    """Takes rows, gives the answers to come."""

    @property
    def broken(self) -> bool:
        """True when no request will be answered any more."""
        ...

    @property
    def waiting(self) -> int:
        """Rows that no batch holds yet."""
        ...

    def refuse(self, rows: int) -> None:
        """Raises what `submit` would raise now of so many rows, which need not be made yet."""
        ...

    def submit(
        self, rows: Sequence[Any], *, deadline: float | None = None
    ) -> asyncio.Future[Arrays]:
        """One array per output, rows in order; cancelling takes the rows out. `deadline` is a time
        of the event loop.

        Raises QueueFull and Unavailable; the future may fail with any RequestFault.
        """
        ...
