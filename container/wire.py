"""Requests and responses as a Python client sees them: KServe v2 JSON and its binary extension."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
JSON_TYPE = "application/json"
BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
HEADER_SIZE = "json-header-size="
BYTES = "BYTES"
DATATYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
}
"""Array types by KServe v2 datatype, little-endian as the binary extension has them."""


class EndpointFault(Exception):
    """The endpoint returned an error; the message holds its sentence."""


class AnswerFault(EndpointFault):
    """The endpoint's response cannot be read, or has other arrays than requested."""


class InputFault(EndpointFault, ValueError):
    """The given values cannot be sent; no request was made."""


def text_request(
    texts: Sequence[str], *, binary: bool = False, input_name: str = "text"
) -> tuple[bytes, str]:
    """Return body and content type of a request with one BYTES tensor, a row per text.

    `binary` chooses the binary extension for request and response. Raises InputFault for anything
    but a list of texts.
    """
    if isinstance(texts, str | bytes):
        raise InputFault(
            f"The texts are one {type(texts).__name__}, {texts[:40]!r}; send a list of them, if "
            "only of one."
        )
    return array_request({input_name: np.array(texts, dtype=object).reshape(-1, 1)}, binary=binary)


def array_request(arrays: Mapping[str, Array], *, binary: bool = True) -> tuple[bytes, str]:
    """Return body and content type of a request with an array per input, rows on axis 0.

    An array of one axis is sent as a column. Raises InputFault for a type that KServe v2 does not
    have, ValueError for NaN or infinity in JSON, which cannot hold them.
    """
    columns = {
        name: array.reshape(-1, 1) if array.ndim == 1 else array for name, array in arrays.items()
    }
    if not binary:
        inputs = [
            _described(name, array) | {"data": _data(array)} for name, array in columns.items()
        ]
        return json.dumps(
            {"inputs": inputs}, ensure_ascii=False, allow_nan=False
        ).encode(), JSON_TYPE
    tails = [_raw(array) for array in columns.values()]
    sizes = [{"parameters": {"binary_data_size": len(tail)}} for tail in tails]
    inputs = [
        _described(name, array) | size
        for (name, array), size in zip(columns.items(), sizes, strict=True)
    ]
    header = json.dumps(
        {"inputs": inputs, "parameters": {"binary_data_output": True}}, ensure_ascii=False
    ).encode()
    return b"".join((header, *tails)), f"{BINARY_TYPE};{HEADER_SIZE}{len(header)}"


def arrays_of(body: bytes, content_type: str) -> dict[str, Array]:
    """The arrays in an answer, by output, JSON or binary. Raises AnswerFault."""
    _, marker, size = content_type.partition(HEADER_SIZE)
    try:
        header = int(size.partition(";")[0]) if marker else len(body)
        tail, found = body[header:], {}
        for output in json.loads(body[:header])["outputs"]:
            if "data" in output:
                values = _array_of(output)
            else:
                length = int(output.get("parameters", {}).get("binary_data_size", len(tail)))
                values, tail = (
                    _decompressed(tail[:length], output.get("datatype", "FP32")),
                    tail[length:],
                )
            found[output["name"]] = values.reshape(output["shape"])
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as fault:
        raise AnswerFault(
            f"The answer cannot be read ({fault!r}); it begins with {body[:80]!r}."
        ) from fault
    return found


def rows_of(body: bytes, content_type: str, output_name: str | None = None) -> Array:
    """One output's rows; without a name, of the only output. Raises AnswerFault."""
    found = arrays_of(body, content_type)
    if output_name is None and len(found) == 1:
        return next(iter(found.values()))
    if output_name is None or output_name not in found:
        expected = "one output" if output_name is None else f"an output {output_name!r}"
        raise AnswerFault(
            f"The answer cannot be read: it should have {expected}, it has "
            f"{', '.join(map(repr, found))}."
        )
    return found[output_name]


def error_sentence(body: bytes | str) -> str:
    """Return the sentence of an error response: its "error", or the beginning of its body."""
    try:
        format_fault = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        format_fault = body.decode(errors="replace") if isinstance(body, bytes) else body
    text = " ".join(str(format_fault).split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def _described(name: str, array: Array) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": datatype(array)}


def datatype(array: Array) -> str:
    """KServe v2's name for an array's type; texts are BYTES. Raises InputFault."""
    if array.dtype.kind in "OUS":
        return BYTES
    for name, dtype in DATATYPES.items():
        if dtype == array.dtype.newbyteorder("<"):
            return name
    raise InputFault(f"KServe v2 has no {array.dtype}; allowed: texts and {', '.join(DATATYPES)}.")


def _raw(array: Array) -> bytes:
    name = datatype(array)
    if name != BYTES:
        numbers: bytes = np.ascontiguousarray(array, DATATYPES[name]).tobytes()
        return numbers
    return b"".join(struct.pack("<I", len(item)) + item for item in _texts(array))


def _data(array: Array) -> list[Any]:
    """An array's values as JSON has them."""
    return (
        array.reshape(-1).tolist()
        if datatype(array) != BYTES
        else [text.decode() for text in _texts(array)]
    )


def _texts(array: Array) -> Iterator[bytes]:
    """Each text in UTF-8. Raises InputFault."""
    for place, text in enumerate(array.reshape(-1)):
        if not isinstance(text, str | bytes):
            raise InputFault(
                f"text[{place}] is {str(text)[:40]!r}, a {type(text).__name__}; it must be a str."
            )
        try:
            yield text.encode() if isinstance(text, str) else text.decode().encode()
        except (UnicodeEncodeError, UnicodeDecodeError) as fault:
            raise InputFault(
                f"text[{place}] is no Unicode ({fault.reason}); send only what UTF-8 can write."
            ) from fault


def _array_of(output: Mapping[str, Any]) -> Array:
    name = output.get("datatype", "FP32")
    values: Array = np.array(output["data"], object if name == BYTES else DATATYPES[name])
    return values


def _decompressed(data: bytes, name: str) -> Array:
    if name != BYTES:
        numbers: Array = np.frombuffer(data, DATATYPES[name])
        return numbers
    items, offset = [], 0
    while offset < len(data):
        (length,) = struct.unpack_from("<I", data, offset)
        items.append(data[offset + 4 : offset + 4 + length].decode())
        offset += 4 + length
    texts: Array = np.array(items, object)
    return texts
