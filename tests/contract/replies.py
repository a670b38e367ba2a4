"""The servers of the suite, what a reply is, and what an exchange is with each of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.contract.requests import JSON_TYPE

KINDS = ("python-server", "triton-sme", "triton-mme")
LARGEST_BODY = 6_291_456


def is_multi_model(kind: str) -> bool:
    """Whether a kind of server loads models by request."""
    return kind.endswith("-mme")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A status, and what the body says."""

    status: int
    says: str


SENTENCE, NOTHING, ANSWER, MODELS = "a sentence", "empty", "the answer", "a list of models"
MODEL = "the model's name and url"


def refusal(status: int = 400) -> Reply:
    """`{"error": "one sentence"}`."""
    return Reply(status=status, says=SENTENCE)


def bare(status: int) -> Reply:
    """No body at all."""
    return Reply(status=status, says=NOTHING)


def answer() -> Reply:
    """The outputs of the request."""
    return Reply(status=200, says=ANSWER)


def _document(body: bytes) -> dict[str, Any]:
    """The object in a body; empty where there is none."""
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _is_refusal(body: bytes) -> bool:
    document = _document(body)
    return list(document) == ["error"] and bool(document["error"])


SAYS: dict[str, Callable[[bytes], bool]] = {
    SENTENCE: _is_refusal,
    NOTHING: lambda body: body == b"",
    ANSWER: lambda body: b'"outputs"' in body,
    MODELS: lambda body: list(_document(body)) == ["models"],
    MODEL: lambda body: {"modelName", "modelUrl"} <= set(_document(body)),
}
"""What each word of a reply means."""


@dataclass(frozen=True)
class Exchange:
    """One request, and the reply of each kind of server that gets it.

    No path is the server's inference path. `{archive}`, `{spoiled}` and `{empty}` in a JSON body
    are folders: an archive, one with a changed file, and nothing.
    """

    name: str
    replies: dict[str, Reply]
    body: bytes = b""
    content_type: str = JSON_TYPE
    method: str = "POST"
    path: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def kinds(self, kinds: tuple[str, ...]) -> tuple[str, ...]:
        """Those of some kinds that have a reply."""
        return tuple(kind for kind in kinds if kind in self.replies)


def replies(python: Reply, sme: Reply, mme: Reply) -> dict[str, Reply]:
    """By kind of server."""
    return {"python-server": python, "triton-sme": sme, "triton-mme": mme}


def alike(reply: Reply) -> dict[str, Reply]:
    """Every server says the same."""
    return replies(reply, reply, reply)


def multi_model(triton: Reply) -> dict[str, Reply]:
    """The reply of the server that loads models by request."""
    return {"triton-mme": triton}
