"""Answers one inference request: unpack, delegate, pack; bodies may be compressed."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from time import monotonic, perf_counter
from typing import Any

from container.server.codecs import heads, images, tensors, texts
from container.server.codecs.envelope import BINARY_TYPE, JSON_TYPE, LARGEST_JSON_BYTES
from container.server.data_plane.plane import DataPlane
from container.server.http.json_lines import infer_lines, is_json_lines
from container.server.http.messages import Request, Response
from container.server.types import (
    HeadSignature,
    ImageSignature,
    RequestFault,
    Signature,
    TensorSignature,
    TooLarge,
    UnsupportedEncoding,
)

INLINE_BYTES = 4096
"""Bodies up to this much are unpacked on the event loop: to 4 MB at most, in about 10 ms."""
CODECS = {
    Signature: texts,
    TensorSignature: tensors,
    HeadSignature: heads,
    ImageSignature: images,
}
COMPRESSED_FROM_BYTES = 1 << 20
GZIP_LEVEL = 1


async def decompressed_body(body: bytes, encoding: bytes | None, limit: int) -> bytes:
    """Return the body without its content encoding.

    Raises UnsupportedEncoding, TooLarge beyond `limit` bytes, RequestFault.
    """
    name = "" if encoding is None else encoding.decode("latin-1").strip().lower()
    if name in ("", "identity"):
        return body
    if name not in ("gzip", "x-gzip", "deflate"):
        raise UnsupportedEncoding(
            f"Content-Encoding is {name[:40]!r}; gzip, deflate and identity are read."
        )
    if len(body) <= INLINE_BYTES:
        return _decompressed(body, name, limit)
    return await asyncio.to_thread(_decompressed, body, name, limit)


async def compressed_response(response: Response, accepted: bytes) -> Response:
    """Return the answer, compressed when it is large JSON and the client reads gzip."""
    is_large_json = (
        len(response.body) >= COMPRESSED_FROM_BYTES and response.content_type == JSON_TYPE
    )
    if not is_large_json or not accepts_gzip(accepted):
        return response
    body = await asyncio.to_thread(gzip.compress, response.body, GZIP_LEVEL, mtime=0)
    headers = (*response.headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    return response._replace(body=body, headers=headers)


def accepts_gzip(accepted: bytes) -> bool:
    """Return True when an Accept-Encoding header allows gzip."""
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
        extra = len(stream.unused_data)
        raise RequestFault(
            f"The {name} body goes on after its end ({extra} bytes); send one stream."
        )
    return plain


async def infer(
    plane: DataPlane,
    request: Request,
    stages: dict[str, float],
    *,
    max_body_bytes: int,
    deadline_seconds: float,
) -> Response:
    """Return the answer of one request; `stages` gets the seconds of each stage that ends.

    Raises RequestFault.
    """
    signature: Any = plane.signature
    codec: Any = CODECS[type(signature)]
    begun = perf_counter()
    deadline = monotonic() + deadline_seconds
    body, encoding = request.body, request.headers.get(b"content-encoding")
    if encoding is not None:
        body = await decompressed_body(body, encoding, min(max_body_bytes, LARGEST_JSON_BYTES))
    kind = content_type(request)
    if is_json_lines(kind):
        response = await infer_lines(plane, codec, body, deadline)
        stages["wait"] = perf_counter() - begun
        return response
    inference = codec.decode_request(body, kind, signature)
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
    body, media_type = codec.encode_response(arrays, inference, signature)
    response = Response(200, body, media_type)
    accepted = request.headers.get(b"accept-encoding")
    if accepted is not None:
        response = await compressed_response(response, accepted)
    stages["encode"] = perf_counter() - ran
    return response


def content_type(request: Request) -> str:
    """Return the content type; KServe's own header of the header's length means the binary one."""
    length = request.headers.get(b"inference-header-content-length")
    if length is not None:
        return f"{BINARY_TYPE};json-header-size={length.decode('latin-1')}"
    return request.headers.get(b"content-type", b"").decode("latin-1")
