"""Bodies that an endpoint captured: KServe v2 in JSON and binary, and plain JSON.

Requests and answers have one form: a JSON document, and tensors by name. What does not follow it is
one Unreadable, since a capture may hold whatever a client sent.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine_build.datasets.dataset import Array

HEADER_SIZE = "json-header-size="
DATATYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
}
"""Array types by KServe v2 datatype."""


class Unreadable(ValueError):
    """A captured body that is no request or answer of ours; the message has nothing of it."""


@dataclass(frozen=True, kw_only=True)
class Body:
    """One side of a captured invocation."""

    data: bytes
    content_type: str


@dataclass(frozen=True, kw_only=True)
class Captured:
    """One captured invocation; None: that side was not captured."""

    request: Body | None
    answer: Body | None


@dataclass(frozen=True, kw_only=True)
class Message:
    """A body that was read."""

    document: Mapping[str, Any]
    tensors: Mapping[str, Array]
    """By name, in their shape; BYTES are texts, or bytes where they were read so. Empty for plain
    JSON."""

    def parameter(self, name: str) -> Any:
        """Return a parameter of the request; None where it has none."""
        parameters = self.document.get("parameters")
        return parameters.get(name) if isinstance(parameters, Mapping) else None


def captured_lines(text: str) -> Iterator[Captured | None]:
    """Yield each line of a capture object; None for one that is none.

    Source: SageMaker developer guide, "Capture data from real-time endpoint".
    """
    # Texts may hold other ends of lines, such as U+2028, as they are.
    for line in filter(str.strip, text.split("\n")):
        try:
            sides = json.loads(line)["captureData"]
            yield Captured(
                request=_side(sides.get("endpointInput")), answer=_side(sides.get("endpointOutput"))
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            yield None


def read_message(body: Body, kind: str, *, files: bool = False) -> Message:
    """Return a body's document and its tensors, under `kind` (inputs, outputs). Raises Unreadable.

    Tensors in plain JSON are none: `inputs` of texts, and `outputs` of rows, stay in the document.
    `files`: BYTES of a binary tail are files, and stay bytes.
    """
    header, tail = _split(body)
    try:
        document = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise Unreadable("it is no JSON") from error
    if not isinstance(document, dict):
        raise Unreadable("it is no JSON object")
    entries = document.get(kind)
    if not isinstance(entries, list) or not entries or not all(map(_is_tensor, entries)):
        return Message(document=document, tensors={})
    tensors = {}
    for entry in entries:
        tensors[str(entry["name"])], tail = _tensor(entry, tail, files=files)
    return Message(document=document, tensors=tensors)


def _side(side: Mapping[str, Any] | None) -> Body | None:
    if side is None:
        return None
    text, encoding = side["data"], side.get("encoding")
    data = base64.b64decode(text, validate=True) if encoding == "BASE64" else text.encode()
    return Body(data=data, content_type=str(side.get("observedContentType") or ""))


def _is_tensor(entry: object) -> bool:
    return isinstance(entry, dict) and "name" in entry and "datatype" in entry


def _split(body: Body) -> tuple[bytes, bytes]:
    for parameter in body.content_type.split(";")[1:]:
        name, is_size, size = parameter.strip().partition(HEADER_SIZE)
        if is_size and not name and size.isascii() and size.isdigit() and len(size) < 12:
            return body.data[: int(size)], body.data[int(size) :]
    return body.data, b""


def _tensor(entry: Mapping[str, Any], tail: bytes, *, files: bool) -> tuple[Array, bytes]:
    """Return a tensor, and what is left of the binary tail."""
    datatype, shape = entry["datatype"], entry.get("shape")
    parameters = entry.get("parameters")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    rest = tail
    try:
        values: Any
        if size is None:
            flat = np.array(entry["data"], dtype=object).reshape(-1)
            values = flat if datatype == "BYTES" else _numbers(flat, DATATYPES[datatype])
        else:
            data, rest = tail[:size], tail[size:]
            if datatype == "BYTES":
                parts = list(_parts(data))
                values = np.array(parts if files else [part.decode() for part in parts], object)
            else:
                values = np.frombuffer(data, DATATYPES[datatype])
        return values.reshape([int(length) for length in shape or [len(values)]]), rest
    except (KeyError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise Unreadable("a tensor's values do not follow its datatype and shape") from error


def _numbers(flat: Array, datatype: np.dtype[Any]) -> Array:
    """JSON has null for NaN and infinities."""
    if datatype.kind == "f":
        flat = np.array([np.nan if value is None else value for value in flat], dtype=object)
    return flat.astype(datatype)


def _parts(data: bytes) -> Iterator[bytes]:
    begin = 0
    while begin < len(data):
        (length,) = struct.unpack_from("<I", data, begin)
        part = data[begin + 4 : begin + 4 + length]
        if len(part) != length:
            raise ValueError("cut short")
        yield part
        begin += 4 + length
