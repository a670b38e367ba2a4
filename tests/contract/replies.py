"""The servers that one suite asks, what a reply is, and what an exchange is with each of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from tests.contract.requests import JSON_TYPE

KINDS = ("python-server", "python-mme", "triton-sme", "triton-mme")
"""The servers that the suite asks."""
TITLES = {
    "python-server": "Python server",
    "python-mme": "Python server, multi-model",
    "triton-sme": "Triton, single model",
    "triton-mme": "Triton, multi-model",
    "triton-kserve": "Triton's own port, off by default",
}
LARGEST_BODY = 6_291_456


def is_multi_model(kind: str) -> bool:
    """Whether a kind of server loads models by request."""
    return kind.endswith("-mme")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A status, and what the body says; status 0 is no answer, but what the server does."""

    status: int
    says: str

    def __str__(self) -> str:
        """As the table shows it: a status alone answers, or refuses in a sentence."""
        if self.says == (ANSWER if self.status == 200 else SENTENCE):
            return str(self.status)
        return self.says if self.status == 0 else f"{self.status}, {self.says}"


SENTENCE, NOTHING, ANSWER, MODELS, MODEL = (
    "a sentence",
    "empty",
    "the answer",
    "a list of models",
    "the model's name and url",
)
PAGE = "a list of one, and the next page's token"
THE_END = "**the server ends**"


def refused(status: int = 400) -> Reply:
    """`{"error": "one sentence"}`."""
    return Reply(status=status, says=SENTENCE)


def bare(status: int) -> Reply:
    """No body at all."""
    return Reply(status=status, says=NOTHING)


def answered() -> Reply:
    """The outputs that were asked for."""
    return Reply(status=200, says=ANSWER)


def does(what: str) -> Reply:
    """No answer."""
    return Reply(status=0, says=what)


def _document(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return None


SAYS: dict[str, Callable[[bytes], bool]] = {
    SENTENCE: lambda body: (
        isinstance(found := _document(body), dict)
        and list(found) == ["error"]
        and bool(found["error"])
    ),
    NOTHING: lambda body: body == b"",
    ANSWER: lambda body: b'"outputs"' in body,
    MODELS: lambda body: isinstance(found := _document(body), dict) and list(found) == ["models"],
    PAGE: lambda body: (
        isinstance(found := _document(body), dict)
        and len(found["models"]) == 1
        and bool(found["nextPageToken"])
    ),
    MODEL: lambda body: (
        isinstance(found := _document(body), dict) and {"modelName", "modelUrl"} <= set(found)
    ),
}
"""What each word of a reply means."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request, and the reply of each kind of server that it is put to.

    No path is the server's inference path. `{archive}`, `{spoiled}` and `{empty}` in a JSON body
    are folders: an archive, one with a changed file, and nothing.
    """

    name: str
    replies: dict[str, Reply]
    method: str = "POST"
    path: str | None = None
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()

    def kinds(self, kinds: tuple[str, ...]) -> tuple[str, ...]:
        """Those of some kinds that have a reply."""
        return tuple(kind for kind in kinds if kind in self.replies)


def replies(
    python: Reply | None, sme: Reply | None, mme: Reply | None, python_mme: Reply | None = None
) -> dict[str, Reply]:
    """By kind; the Python server says the same in its multi-model mode unless told otherwise."""
    several = python if python_mme is None else python_mme
    found = {"python-server": python, "python-mme": several, "triton-sme": sme, "triton-mme": mme}
    return {kind: reply for kind, reply in found.items() if reply is not None}


def alike(reply: Reply) -> dict[str, Reply]:
    """Every server says the same."""
    return replies(reply, reply, reply)


def multi_model(python: Reply, triton: Reply) -> dict[str, Reply]:
    """Replies of the servers that load models by request."""
    return {"python-mme": python, "triton-mme": triton}
