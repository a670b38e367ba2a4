"""What each server answers under faults and pressure."""

from __future__ import annotations

from tests.contract.replies import (
    KINDS,
    THE_END,
    Exchange,
    Reply,
    does,
    multi_model,
    refused,
    replies,
)

DEADLY = (
    # It answers twice and aborts: the parser's answer, then the loader's. A single-model server has
    # the path too.
    Exchange(
        name="load with a body that is not JSON",
        path="/models",
        body=b"{",
        replies=replies(refused(404), does(THE_END), does(THE_END), refused()),
    ),
)
"""Each for a server of its own."""


def _tritons(sme: Reply, mme: Reply, kserve: Reply) -> dict[str, Reply]:
    return {"triton-sme": sme, "triton-mme": mme, "triton-kserve": kserve}


PRESSED = (
    Exchange(
        name="the queue is full",
        replies={
            "python-server": refused(503),
            "python-mme": refused(503),
            **_tritons(refused(503), refused(), refused(503)),
        },
    ),
    Exchange(
        name="the wait in the queue is too long",
        replies=_tritons(refused(503), refused(), refused(503)),
    ),
    Exchange(
        name="the engine says that memory is short",
        replies={
            "python-server": refused(503),
            "python-mme": refused(507),
            **_tritons(refused(500), refused(507), refused(500)),
        },
    ),
    Exchange(name="the engine fails", replies=_tritons(refused(500), refused(), refused(500))),
)
"""Inference requests under faults and pressure, made by `test_pressure`, on Triton's port too."""

BAD_HOURS = (
    *PRESSED,
    Exchange(
        name="load while memory is short",
        path="/models",
        replies=multi_model(refused(507), refused(507)),
    ),
    *DEADLY,
    Exchange(
        name="bound to 127.0.0.1, listens on",
        replies=replies(does("127.0.0.1"), does("every interface"), does("every interface")),
    ),
)
"""All that the table shows of faults and pressure."""

WITH_KSERVE = (*KINDS, "triton-kserve")


def reply(name: str, kind: str) -> Reply:
    """The reply of a kind of server to the exchange of a name."""
    return next(exchange for exchange in BAD_HOURS if exchange.name == name).replies[kind]
