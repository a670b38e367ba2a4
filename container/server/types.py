"""Values that all layers share: requests, signatures, and the faults that a client may get.

RequestFault            400  the request cannot be read or does not fit the model
+-- UnknownPath         404  no such path or model
+-- WrongMethod         405  the path exists, but not for this method
+-- TooSlow             408  the request did not arrive whole in time
+-- TooLarge            413  more bytes or rows than this server takes at once
+-- UnsupportedEncoding 415  a content encoding or type that this server does not read
+-- EngineRefused       422  the engine fails on this request alone
+-- HeaderTooLarge      431  more bytes of request line and header than this server reads
+-- Unavailable         503  loading, draining or broken; Retry-After is set
|   +-- QueueFull       503  the queue holds as many rows as it may
|   +-- DeadlinePassed  503  no answer within the request's time
|   +-- MemoryShort     503  the engine had no memory for this request beside what it ran
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from onboarding.manifest import Prompts, TensorRecord
from onboarding.values import Activation, Task

JSON_TYPE = "application/json"
BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]
"""One array per output, rows on axis 0."""


class RequestFault(Exception):
    """A request that gets no answer; the message is the one sentence that the client reads."""

    status = 400
    retry_after_seconds: int | None = None


class UnknownPath(RequestFault):
    status = 404


class WrongMethod(RequestFault):
    status = 405


class TooSlow(RequestFault):
    status = 408


class TooLarge(RequestFault):
    status = 413


class UnsupportedEncoding(RequestFault):
    status = 415


class EngineRefused(RequestFault):
    status = 422


class HeaderTooLarge(RequestFault):
    status = 431


class Unavailable(RequestFault):
    status = 503
    retry_after_seconds = 1


class QueueFull(Unavailable): ...


class DeadlinePassed(Unavailable): ...


class MemoryShort(Unavailable): ...


class Response(NamedTuple):
    """An answer in HTTP; its length and content type are not among `headers`."""

    status: int
    body: bytes
    content_type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Encoded(NamedTuple):
    """The rows of a request's texts."""

    rows: Sequence[Any]
    truncated: int
    """Texts that were cut to what the engine takes."""


Form = Literal["texts", "tensors", "heads", "images"]
"""Texts to rows; tensors; texts, pairs or images to labels and scores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """A served model as a client sees it; datatypes are KServe v2's."""

    form: Form
    model: str
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    task: Task | None = None
    labels: tuple[str, ...] | None = None
    """None of a ranker."""
    activation: Activation = "identity"
    prompts: Prompts | None = None

    @property
    def rows(self) -> str:
        """What a request holds."""
        return {"tensors": "rows", "images": "images"}.get(self.form, "texts")


class TokenText:
    """A text, and once it is tokenized `spans` int32 [tokens, 2]: where in it each token lies."""

    __slots__ = ("spans", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans: Array = np.empty((0, 2), np.int32)


class InferenceRequest(NamedTuple):
    """Rows to answer, and how the client wants the answer written."""

    rows: Sequence[Any]
    """Texts, pairs of a query and a text, TokenTexts, image files, or a row of every input."""
    dialect: Literal["kserve", "plain"] = "kserve"
    wanted: tuple[tuple[int, bool], ...] = ()
    """Each requested output's index, and whether it is binary."""
    top_k: int | None = None
    """The labels of a plain answer, the likeliest first; None: all."""
    id: str | None = None
    timeout_seconds: float | None = None
    """How long the client waits; the server's own deadline may be sooner."""


def first_line(fault: BaseException) -> str:
    """Return the first line of a fault that is not blank, or else the name of its type."""
    return next(filter(str.strip, str(fault).splitlines()), type(fault).__name__)
