"""Observers of batches and of HTTP requests: what metrics and the failure log implement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

Drop = Literal[
    "cancelled", "deadline", "queue_full", "too_large", "refused", "memory", "broken", "closing"
]
"""Why a request got no answer."""


class BatchObserver(Protocol):
    """Records batches; every request ends in exactly one `request_over` or `dropped`."""

    def batch_ran(
        self,
        *,
        rows: int,
        tokens: int,
        padded_tokens: int,
        engine_seconds: float,
        queue_seconds: float,
    ) -> None:
        """Record a batch that ended; `queue_seconds` is how long its first row had waited."""
        ...

    def request_over(self, *, queue_seconds: float) -> None:
        """Record an answered request; its last row left the queue after `queue_seconds`."""
        ...

    def record_drop(self, *, reason: Drop, rows: int) -> None:
        """Record a request of so many rows that ends without an answer, or was not admitted."""
        ...

    def engine_failed(self, *, fault: Exception, rows: int) -> None:
        """Record a batch of so many rows on which the engine failed."""
        ...


class NullBatchObserver:
    """Records nothing."""

    def batch_ran(
        self,
        *,
        rows: int,
        tokens: int,
        padded_tokens: int,
        engine_seconds: float,
        queue_seconds: float,
    ) -> None: ...

    def request_over(self, *, queue_seconds: float) -> None: ...

    def record_drop(self, *, reason: Drop, rows: int) -> None: ...

    def engine_failed(self, *, fault: Exception, rows: int) -> None: ...


CLIENT_LEFT = 499
"""The status told of a request whose client left before its answer; no client ever reads it."""


class RequestObserver(Protocol):
    """Records HTTP requests; called on the event loop, so it must be quick."""

    def request_over(
        self,
        path_kind: str,
        status: int,
        seconds: float,
        stages: Mapping[str, float],
        *,
        model: str | None = None,
    ) -> None:
        """Record a request that was answered, or whose client left.

        `path_kind` is infer, health, metadata, metrics, models, model or elsewhere. `stages` has
        the seconds of decode, tokenize, wait (queue and engine) and encode, as far as the request
        got. `model` is the name in a multi-model path; with status 404 there may be no such model.
        """
        ...


class NullRequestObserver:
    """Records nothing."""

    def request_over(
        self,
        path_kind: str,
        status: int,
        seconds: float,
        stages: Mapping[str, float],
        *,
        model: str | None = None,
    ) -> None: ...
