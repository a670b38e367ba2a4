"""Image files in, labels and scores out, as bytes.

KServe v2 JSON with base64, its binary extension, plain JSON `{"inputs": ["base64"]}`, and a JPEG or
PNG file as the whole body. Pure; files are decoded later, in a thread.
"""

from __future__ import annotations

from container.server.codecs.envelope import (
    kserve_request,
    plain_texts,
    read_envelope,
    timeout_seconds,
)
from container.server.codecs.heads import encode_response, top_labels
from container.server.codecs.texts import Words, kserve_rows, refuse_tail
from container.server.types import InferenceRequest, Signature
from container.triton.images import file_bytes

FILE_TYPES = ("image/jpeg", "image/png")
"""Content types of a body that is one file."""
IMAGES = Words("images", "base64 of images", "base64 text", "base64 texts", "an image")
__all__ = ["decode_request", "encode_response"]


def decode_request(body: bytes, content_type: str, signature: Signature) -> InferenceRequest:
    """Return the request in a body. Raises RequestFault with the sentence for the client."""
    base = content_type.partition(";")[0].strip().lower()
    if base in FILE_TYPES:
        return InferenceRequest(rows=(body,), dialect="plain")
    document, tail = read_envelope(body, content_type)
    inputs = document["inputs"]
    texts = plain_texts(inputs)
    if texts is not None:
        refuse_tail(tail)
        return InferenceRequest(
            rows=[file_bytes(text.encode()) for text in texts],
            dialect="plain",
            top_k=top_labels(document, signature),
            timeout_seconds=timeout_seconds(document),
        )
    rows = kserve_rows(
        inputs,
        tail,
        signature.inputs[0].name,
        IMAGES,
        lambda text: file_bytes(text.encode()),
        lambda _, file: file_bytes(file),
    )
    return kserve_request(document, rows, [record.name for record in signature.outputs])
