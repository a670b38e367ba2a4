"""Observers of batches and of HTTP requests: what metrics and the failure log implement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

Drop = Literal[
    "cancelled", "deadline", "queue_full", "too_large", "refused", "memory", "broken", "closing"
]
"""Why a request got no answer."""


class BatchObserver(Protocol):
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


class NullBatchObserver:
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


CLIENT_LEFT = 499
"""The status told of a request whose client left before its answer; no client ever reads it."""


class RequestObserver(Protocol):
    """Hears of requests; called on the event loop, so it is quick."""

    def request_over(
        self,
        path_kind: str,
        status: int,
        seconds: float,
        stages: Mapping[str, float],
        *,
        model: str | None = None,
    ) -> None:
        """A request was answered, or its client left.

        `path_kind` is infer, health, metadata, metrics, models, model or elsewhere. `stages` has
        the seconds of decode, tokenize,
        wait (queue and engine) and encode, as far as the request got. `model` is the name in a
        multi-model path: with a status of
        404 there may be no such model.
        """
        ...


class NullRequestObserver:
    """Observes nothing."""

    def request_over(
        self,
        path_kind: str,
        status: int,
        seconds: float,
        stages: Mapping[str, float],
        *,
        model: str | None = None,
    ) -> None:
        """Forgets it."""
