"""What the batcher tells whoever counts or logs; every call comes on the event loop and must be
cheap.
"""

from __future__ import annotations

from typing import Literal, Protocol

Drop = Literal[
    "cancelled", "deadline", "queue_full", "too_large", "refused", "memory", "broken", "closing"
]
"""Why a request got no answer."""


class Observer(Protocol):
    """Every request ends in exactly one `request_over` or `dropped`."""

    def batch_ran(
        self,
        *,
        rows: int,
        tokens: int,
        padded_tokens: int,
        engine_seconds: float,
        queue_seconds: float,
    ) -> None:
        """A batch came back: `padded_tokens` count padding too, `queue_seconds` is how long its
        first row had waited.
        """
        ...

    def request_over(self, *, queue_seconds: float) -> None:
        """A request is answered; its last row left the queue after `queue_seconds`."""
        ...

    def dropped(self, *, reason: Drop, rows: int) -> None:
        """A request of so many rows ends without an answer, or was not let in."""
        ...

    def engine_failed(self, *, fault: Exception, rows: int) -> None:
        """The engine failed on a batch of so many rows; the probe has failed too where
        `Batcher.broken` follows.
        """
        ...


class Unobserved:
    """Observes nothing."""

    def batch_ran(
        self,
        *,
        rows: int,
        tokens: int,
        padded_tokens: int,
        engine_seconds: float,
        queue_seconds: float,
    ) -> None:
        """Observes nothing."""

    def request_over(self, *, queue_seconds: float) -> None:
        """Observes nothing."""

    def dropped(self, *, reason: Drop, rows: int) -> None:
        """Observes nothing."""

    def engine_failed(self, *, fault: Exception, rows: int) -> None:
        """Observes nothing."""
