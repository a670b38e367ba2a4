"""Image files in, labels and scores out, as bytes.

KServe v2 JSON with base64, its binary extension, plain JSON `{"inputs": ["base64"]}`, and a JPEG or
PNG file as the whole body. Pure; files are decoded later, in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from container.server.codecs.envelope import (
    binary_size,
    excerpt,
    read_envelope,
    request_id,
    timeout_seconds,
    wanted_outputs,
)
from container.server.codecs.heads import HeadRequest, encode_response, top_labels
from container.server.codecs.texts import (
    binary_parts,
    json_text,
    refuse_tail,
    row_count,
    the_tensor,
)
from container.server.types import ImageSignature, RequestFault
from container.triton.images import file_bytes

FILE_TYPES = ("image/jpeg", "image/png")
"""Content types of a body that is one file."""
__all__ = ["decode_request", "encode_response"]


def decode_request(body: bytes, content_type: str, signature: ImageSignature) -> HeadRequest:
    """Return the request in a body. Raises RequestFault with the sentence for the client."""
    base = content_type.partition(";")[0].strip().lower()
    if base in FILE_TYPES:
        return HeadRequest(rows=(body,), dialect="plain")
    document, tail = read_envelope(body, content_type)
    inputs, timeout = document["inputs"], timeout_seconds(document)
    texts = [inputs] if isinstance(inputs, str) else inputs
    if isinstance(texts, list) and set(map(type, texts)) == {str}:
        refuse_tail(tail)
        return HeadRequest(
            rows=[file_bytes(text.encode()) for text in texts],
            dialect="plain",
            top_k=top_labels(document, signature),
            timeout_seconds=timeout,
        )
    name = signature.inputs[0].name
    return HeadRequest(
        rows=_kserve_files(inputs, tail, name),
        dialect="kserve",
        wanted=wanted_outputs(document, [record.name for record in signature.outputs]),
        id=request_id(document),
        timeout_seconds=timeout,
    )


def _kserve_files(inputs: object, tail: bytes, name: str) -> Sequence[bytes]:
    """Return the files of the one tensor that a request has."""
    tensor = the_tensor(inputs, name, "base64 of images")
    shape = tensor.get("shape")
    rows, files = row_count(shape, name, "images"), _files(tensor, tail, name)
    if len(files) != rows:
        raise RequestFault(f"Input {name!r} has shape {shape} but {len(files)} images.")
    return files


def _files(tensor: Mapping[str, Any], tail: bytes, name: str) -> list[bytes]:
    size = binary_size(tensor)
    if size is not None:
        if type(size) is not int or size != len(tail):
            raise RequestFault(
                f"Input {name!r} has binary_data_size {excerpt(size)} but the body carries "
                f"{len(tail)} bytes after its header."
            )
        return [file_bytes(file) for _, file in binary_parts(tail, name, "an image")]
    refuse_tail(tail)
    data = tensor.get("data")
    if not isinstance(data, list):
        raise RequestFault(f'Input {name!r} needs "data" with a list of base64 texts.')
    return [file_bytes(json_text(item, name, "base64 text").encode()) for item in data]
