"""What each server answers under faults and pressure."""

from __future__ import annotations

from tests.contract.replies import Exchange, Reply, multi_model, refusal, replies

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


def _tritons(sme: int, mme: int) -> dict[str, Reply]:
    return {"triton-sme": refusal(sme), "triton-mme": refusal(mme)}


PRESSED = (
    Exchange(
        "the queue is full",
        {"python-server": refusal(503)} | _tritons(503, 400),
    ),
    Exchange("the wait in the queue is too long", _tritons(503, 400)),
    Exchange(
        "the engine says that memory is short",
        {"python-server": refusal(503)} | _tritons(500, 507),
    ),
    Exchange("the engine fails", _tritons(500, 400)),
)
"""Inference requests under faults and pressure, made by `test_pressure`."""

UNDER_PRESSURE = (
    *PRESSED,
    Exchange("load while memory is short", multi_model(refusal(507)), path="/models"),
    *DEADLY,
)
"""All that the table shows of faults and pressure."""


def reply(name: str, kind: str) -> Reply:
    """The reply of a kind of server to the exchange of a name."""
    return next(exchange for exchange in UNDER_PRESSURE if exchange.name == name).replies[kind]
