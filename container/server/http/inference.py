"""Answers one inference request: unpack, delegate, pack."""

from __future__ import annotations

from time import monotonic, perf_counter
from typing import Any

from container.server.codecs import heads, images, tensors, texts
from container.server.data_plane.plane import DataPlane
from container.server.http.dispatch import Stages, content_type, refuse_encoding
from container.server.http.messages import Request, Response
from container.server.types import (
    HeadSignature,
    ImageSignature,
    Signature,
    TensorSignature,
)

CODECS = {
    Signature: texts,
    TensorSignature: tensors,
    HeadSignature: heads,
    ImageSignature: images,
}


async def infer(
    plane: DataPlane, request: Request, stages: Stages, *, deadline_seconds: float
) -> Response:
    """Return the answer of one request; `stages` gets the seconds of each stage that ends.

    Raises RequestFault.
    """
    signature: Any = plane.signature
    codec: Any = CODECS[type(signature)]
    begun = perf_counter()
    deadline = monotonic() + deadline_seconds
    refuse_encoding(request)
    kind = content_type(request)
    inference = codec.decode_request(request.body, kind, signature)
    if inference.timeout_seconds is not None:
        deadline += min(0.0, inference.timeout_seconds - deadline_seconds)
    decoded = perf_counter()
    stages["decode"] = decoded - begun
    encoded = plane.encode_short(inference.rows)
    if encoded is None:
        answers = await plane.submit(inference.rows, deadline=deadline)
    tokenized = perf_counter()
    stages["tokenize"] = tokenized - decoded
    if encoded is not None:
        answers = plane.submit_encoded(encoded, deadline=deadline, alone=request.is_alone)
    arrays = await answers
    ran = perf_counter()
    stages["wait"] = ran - tokenized
    body, media_type = codec.encode_response(arrays, inference, signature)
    stages["encode"] = perf_counter() - ran
    return Response(200, body, media_type)
