"""Texts in, float32 rows out, as bytes.

KServe v2 JSON, its binary extension, and plain `{"inputs": ["text"]}`. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from container.server.codecs.envelope import (
    binary_size,
    encode_outputs,
    excerpt,
    json_bytes,
    json_type,
    kserve_request,
    plain_texts,
    prompt_prefix,
    read_envelope,
    timeout_seconds,
)
from container.server.types import JSON_TYPE, InferenceRequest, RequestFault, Signature

Row = TypeVar("Row")


def decode_request(body: bytes, content_type: str, signature: Signature) -> InferenceRequest:
    """Return the request in a body. Raises RequestFault with the sentence for the client."""
    document, tail = read_envelope(body, content_type)
    inputs = document["inputs"]
    texts = plain_texts(inputs)
    if texts is not None:
        refuse_tail(tail)
        timeout = timeout_seconds(document)
        prefix = prompt_prefix(document, signature.prompts, plain=True)
        rows = _prefixed(prefix, texts)
        return InferenceRequest(rows=rows, dialect="plain", timeout_seconds=timeout)
    prefix = prompt_prefix(document, signature.prompts)
    rows = _prefixed(prefix, kserve_texts(inputs, tail, signature.inputs[0].name))
    return kserve_request(document, rows, (signature.outputs[0].name,))


def encode_response(
    arrays: Sequence[np.ndarray[Any, Any]], request: InferenceRequest, signature: Signature
) -> tuple[bytes, str]:
    """Return body and content type; the first array is float32 [texts, ...], contiguous."""
    rows = arrays[0]
    if request.dialect == "plain":
        return json_bytes({"outputs": rows}), JSON_TYPE
    output = (signature.outputs[0].name, "FP32", rows, request.wanted[0][1])
    return encode_outputs(signature, request.id, (output,))


def _prefixed(prefix: str, texts: Sequence[str]) -> tuple[str, ...]:
    return tuple([prefix + text for text in texts] if prefix else texts)


class Words(NamedTuple):
    """How refusals name what a tensor holds."""

    rows: str = "texts"
    plain: str = "texts"
    """What plain JSON has in the tensor's place."""
    item: str = "a text"
    data: str = "texts"
    """What the items of JSON are."""
    part: str = "a text"
    """One of the binary tail."""


TEXTS = Words()


def kserve_texts(inputs: object, tail: bytes, name: str) -> tuple[str, ...]:
    """Return the texts of the one tensor that a request has."""

    def read_part(begin: int, part: bytes) -> str:
        try:
            return str(part, "utf-8")
        except UnicodeDecodeError as fault:
            reason = f"{fault.reason} at byte {begin + fault.start}"
            raise RequestFault(f"Input {name!r} holds text that is not UTF-8: {reason}.") from fault

    return kserve_rows(inputs, tail, name, TEXTS, str, read_part)


def kserve_rows(
    inputs: object,
    tail: bytes,
    name: str,
    words: Words,
    read_text: Callable[[str], Row],
    read_part: Callable[[int, bytes], Row],
) -> tuple[Row, ...]:
    """Return the rows of the one tensor that a request has, of JSON's texts or of binary parts.

    `read_part` is also given where in the tail a part begins. Raises RequestFault.
    """
    tensor = _the_tensor(inputs, name, words.plain)
    shape, size = tensor.get("shape"), binary_size(tensor)
    count = _row_count(shape, name, words.rows)
    if size is not None:
        if type(size) is not int or size != len(tail):
            raise RequestFault(
                f"Input {name!r} has binary_data_size {excerpt(size)} but the body carries "
                f"{len(tail)} bytes after its header."
            )
        rows = [read_part(*part) for part in binary_parts(tail, name, words.part)]
    else:
        refuse_tail(tail)
        data = tensor.get("data")
        if not isinstance(data, list):
            raise RequestFault(f'Input {name!r} needs "data" with a list of {words.data}.')
        rows = [read_text(_json_text(item, name, words.item)) for item in data]
    if len(rows) != count:
        raise RequestFault(f"Input {name!r} has shape {shape} but {len(rows)} {words.rows}.")
    return tuple(rows)


def _the_tensor(inputs: object, name: str, rows: str) -> dict[str, Any]:
    """Return the one BYTES tensor that a request has; `rows` is what plain JSON has in its place.

    Raises RequestFault.
    """
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise RequestFault(
            f'"inputs" must be a list of {rows} or a list of one tensor named {name!r}.'
        )
    tensor: dict[str, Any] = inputs[0]
    if tensor.get("name") != name:
        raise RequestFault(
            f"Unknown input {excerpt(tensor.get('name'))}; the model takes {name!r}."
        )
    if tensor.get("datatype") != "BYTES":
        raise RequestFault(
            f"Input {name!r} has datatype {excerpt(tensor.get('datatype'))}; it must be 'BYTES'."
        )
    return tensor


def _row_count(shape: object, name: str, rows: str) -> int:
    """Return the rows of shape [n] or [n, 1]; `rows` is their noun. Raises RequestFault."""
    if isinstance(shape, list) and list(map(type, shape)) in ([int], [int, int]):
        rows_given, rest = shape[0], shape[1:]
        if rest in ([], [1]) and rows_given >= 0:
            return int(rows_given)
    raise RequestFault(f"Input {name!r} has shape {excerpt(shape)}; it must be [{rows}, 1].")


def refuse_tail(tail: bytes) -> None:
    """Refuse bytes after a header that claims none. Raises RequestFault."""
    if tail:
        raise RequestFault(
            f"The body carries {len(tail)} bytes after its header that no input claims with "
            "binary_data_size."
        )


def _json_text(item: object, name: str, noun: str) -> str:
    """Return a text of flat or nested data. Raises RequestFault."""
    text = item[0] if isinstance(item, list) and len(item) == 1 else item
    if not isinstance(text, str):
        raise RequestFault(f"Input {name!r} holds {json_type(text)} where {noun} belongs.")
    return text


def binary_parts(tail: bytes, name: str, noun: str) -> Iterator[tuple[int, bytes]]:
    """Yield where each part begins, and its bytes. Raises RequestFault.

    Each part is its length as 4 bytes, little-endian, then its bytes.
    """
    offset = 0
    while offset < len(tail):
        end = offset + 4
        size = struct.unpack_from("<I", tail, offset)[0] if end <= len(tail) else len(tail)
        if end + size > len(tail):
            raise RequestFault(
                f"Input {name!r} ends inside {noun}: byte {offset} announces more bytes than the "
                "body carries."
            )
        yield end, tail[end : end + size]
        offset = end + size
