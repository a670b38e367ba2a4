"""One inference request: unpack, delegate, pack."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic, perf_counter
from typing import Any, Protocol

from container.server.codecs import tensors, texts
from container.server.codecs.envelope import BINARY_TYPE
from container.server.http.content_encoding import packed, plain_body
from container.server.http.message import Request, Response
from container.server.types import Arrays, Signature, TensorSignature


class Plane(Protocol):
    """A served model: what the data plane is to HTTP."""

    @property
    def signature(self) -> Signature | TensorSignature:
        """What clients are told of the model."""
        ...

    @property
    def ready(self) -> bool:
        """True when a request would be answered now."""
        ...

    def submit_short(
        self, rows: Sequence[Any], *, deadline: float | None = None
    ) -> asyncio.Future[Arrays] | None:
        """Encodes the rows and gives their answers to come; `deadline` is a time of the event loop.
        Raises RequestFault.

        None, when encoding them would hold up the event loop.
        """
        ...

    async def submit(
        self, rows: Sequence[Any], *, deadline: float | None = None
    ) -> asyncio.Future[Arrays]:
        """The same for any rows."""
        ...


async def infer(
    plane: Plane,
    request: Request,
    stages: dict[str, float],
    *,
    max_body_bytes: int,
    deadline_seconds: float,
) -> Response:
    """The answer of one request; `stages` gets the seconds of each stage that ends.

    Raises RequestFault.
    """
    signature: Any = plane.signature
    codec: Any = tensors if isinstance(signature, TensorSignature) else texts
    headers = request.headers
    begun = perf_counter()
    deadline = monotonic() + deadline_seconds
    encoding = headers.get(b"content-encoding")
    body = (
        request.body
        if encoding is None
        else await plain_body(request.body, encoding, max_body_bytes)
    )
    asked = codec.decoded(body, content_type(request), signature)
    if asked.timeout_seconds is not None:
        deadline += min(0.0, asked.timeout_seconds - deadline_seconds)
    decoded = perf_counter()
    stages["decode"] = decoded - begun
    coming = plane.submit_short(asked.rows, deadline=deadline)
    if coming is None:
        coming = await plane.submit(asked.rows, deadline=deadline)
    taken = perf_counter()
    stages["tokenize"] = taken - decoded
    arrays = await coming
    ran = perf_counter()
    stages["wait"] = ran - taken
    found, written_as = codec.encoded(arrays if codec is tensors else arrays[0], asked, signature)
    response = Response(200, found, written_as)
    accepted = headers.get(b"accept-encoding")
    if accepted is not None:
        response = await packed(response, accepted)
    stages["encode"] = perf_counter() - ran
    return response


def content_type(request: Request) -> str:
    """The content type; KServe's own header of the header's length counts as the binary one."""
    length = request.headers.get(b"inference-header-content-length")
    if length is not None:
        return f"{BINARY_TYPE};json-header-size={length.decode('latin-1')}"
    return request.headers.get(b"content-type", b"").decode("latin-1")
