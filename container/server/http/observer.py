"""Who is told of every request that is over: metrics, in the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

CLIENT_LEFT = 499
"""The status told of a request whose client left before its answer; no client ever reads it."""


class Observer(Protocol):
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


class Deaf:
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
