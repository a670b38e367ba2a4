"""What each server answers under faults and pressure."""

from __future__ import annotations

from tests.contract.replies import (
    KINDS,
    Exchange,
    Reply,
    alike,
    does,
    multi_model,
    refusal,
    replies,
)

DEADLY = (
    # Triton itself would answer twice and abort: the parser's answer, then the loader's.
    Exchange(
        "load with a body that is not JSON",
        replies(refusal(404), refusal(405), refusal()),
        b"{",
        path="/models",
    ),
)
"""Each for a server of its own."""


def _tritons(sme: int, mme: int, kserve: int) -> dict[str, Reply]:
    kinds = ("triton-sme", "triton-mme", "triton-kserve")
    return {kind: refusal(status) for kind, status in zip(kinds, (sme, mme, kserve), strict=True)}


PRESSED = (
    Exchange(
        "the queue is full",
        {"python-server": refusal(503)} | _tritons(503, 400, 503),
    ),
    Exchange("the wait in the queue is too long", _tritons(503, 400, 503)),
    Exchange(
        "the engine says that memory is short",
        {"python-server": refusal(503)} | _tritons(500, 507, 500),
    ),
    Exchange("the engine fails", _tritons(500, 400, 500)),
)
"""Inference requests under faults and pressure, made by `test_pressure`, on Triton's port too."""

UNDER_PRESSURE = (
    *PRESSED,
    Exchange("load while memory is short", multi_model(refusal(507)), path="/models"),
    *DEADLY,
    Exchange(
        "bound to 127.0.0.1, listens on",
        alike(does("127.0.0.1")),
    ),
)
"""All that the table shows of faults and pressure."""

WITH_KSERVE = (*KINDS, "triton-kserve")


def reply(name: str, kind: str) -> Reply:
    """The reply of a kind of server to the exchange of a name."""
    return next(exchange for exchange in UNDER_PRESSURE if exchange.name == name).replies[kind]
