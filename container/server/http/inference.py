"""Answers one inference request: unpack, delegate, pack; bodies may be compressed."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Sequence
from time import monotonic, perf_counter
from typing import Any, Protocol

from container.server.codecs import tensors, texts
from container.server.codecs.envelope import BINARY_TYPE, JSON_TYPE
from container.server.http.messages import Request, Response
from container.server.types import (
    Arrays,
    RequestFault,
    Signature,
    TensorSignature,
    TooLarge,
    UnsupportedEncoding,
)

INLINE_BYTES = 4096
"""Bodies up to this much are unpacked on the event loop; they come to 4 MB at most, in about 10 ms.
"""
COMPRESSED_FROM_BYTES = 1 << 20
LEVEL = 1
READ = ("gzip", "x-gzip", "deflate")


async def decompressed_body(body: bytes, encoding: bytes | None, limit: int) -> bytes:
    """The body without its content encoding.

    Raises UnsupportedEncoding, TooLarge beyond `limit` bytes, RequestFault.
    """
    if encoding is None:
        return body
    name = encoding.decode("latin-1").strip().lower()
    if name in ("", "identity"):
        return body
    if name not in READ:
        raise UnsupportedEncoding(
            f"Content-Encoding is {name[:40]!r}; gzip, deflate and identity are read."
        )
    if len(body) <= INLINE_BYTES:
        return _decompressed(body, name, limit)
    return await asyncio.to_thread(_decompressed, body, name, limit)


async def compressed_response(response: Response, accepted: bytes | None) -> Response:
    """The answer, packed when it is large JSON and the client reads gzip."""
    if (
        accepted is None
        or len(response.body) < COMPRESSED_FROM_BYTES
        or response.content_type != JSON_TYPE
    ):
        return response
    if not accepts_gzip(accepted):
        return response
    body = await asyncio.to_thread(gzip.compress, response.body, LEVEL, mtime=0)
    headers = (*response.headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    return response._replace(body=body, headers=headers)


def accepts_gzip(accepted: bytes) -> bool:
    """True when an Accept-Encoding header allows gzip."""
    for choice in accepted.decode("latin-1").lower().split(","):
        name, _, parameter = choice.partition(";")
        if name.strip() in ("gzip", "x-gzip", "*"):
            weight = parameter.strip().removeprefix("q=").strip()
            return weight.strip("0.") != "" or parameter == ""
    return False


def _decompressed(body: bytes, name: str, limit: int) -> bytes:
    """Decompress one gzip or zlib stream, never beyond the limit, so that a bomb is cheap."""
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    try:
        plain = stream.decompress(body, limit + 1)
    except zlib.error as fault:
        raise RequestFault(f"The body is not {name}: {fault}.") from fault
    if len(plain) > limit:
        raise TooLarge(f"The request has more than {limit} bytes once unpacked.")
    if not stream.eof:
        raise RequestFault(f"The {name} body ends too early.")
    if stream.unused_data:
        raise RequestFault(
            f"The {name} body goes on after its end ({len(stream.unused_data)} bytes); send one "
            "stream."
        )
    return plain


class Plane(Protocol):
    """A served model: what the data plane is to HTTP."""

    @property
    def signature(self) -> Signature | TensorSignature:
        """The model as clients see it."""
        ...

    @property
    def ready(self) -> bool:
        """True when a request would be answered now."""
        ...

    def submit_short(
        self, rows: Sequence[Any], *, deadline: float | None = None
    ) -> asyncio.Future[Arrays] | None:
        """Encodes the rows and gives their answers to come.

        `deadline` is a time of the event loop. Raises RequestFault. None, when encoding them would
        hold up the event loop.
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
        else await decompressed_body(request.body, encoding, max_body_bytes)
    )
    inference = codec.decode_request(body, content_type(request), signature)
    if inference.timeout_seconds is not None:
        deadline += min(0.0, inference.timeout_seconds - deadline_seconds)
    decoded = perf_counter()
    stages["decode"] = decoded - begun
    answers = plane.submit_short(inference.rows, deadline=deadline)
    if answers is None:
        answers = await plane.submit(inference.rows, deadline=deadline)
    submitted = perf_counter()
    stages["tokenize"] = submitted - decoded
    arrays = await answers
    ran = perf_counter()
    stages["wait"] = ran - submitted
    body, media_type = codec.encode_response(
        arrays if codec is tensors else arrays[0], inference, signature
    )
    response = Response(200, body, media_type)
    accepted = headers.get(b"accept-encoding")
    if accepted is not None:
        response = await compressed_response(response, accepted)
    stages["encode"] = perf_counter() - ran
    return response


def content_type(request: Request) -> str:
    """The content type; KServe's own header of the header's length counts as the binary one."""
    length = request.headers.get(b"inference-header-content-length")
    if length is not None:
        return f"{BINARY_TYPE};json-header-size={length.decode('latin-1')}"
    return request.headers.get(b"content-type", b"").decode("latin-1")
