"""Requests and responses as a Python client sees them: KServe v2 JSON and its binary extension."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
JSON_TYPE = "application/json"
BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
HEADER_SIZE = "json-header-size="
BYTES = "BYTES"
PAIR = ("query", "text")
LOGITS = "logits"
"""The output of a classifier that stands beside its labels and scores."""
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
    texts: Sequence[str],
    *,
    binary: bool = False,
    prompt_name: str | None = None,
) -> tuple[bytes, str]:
    """Return body and content type of a request with one BYTES tensor, a row per text.

    `binary` chooses the binary extension for request and response; `prompt_name` is of the model's
    prompts. Raises InputFault for anything but a list of texts.
    """
    if isinstance(texts, str | bytes):
        kind = type(texts).__name__
        raise InputFault(
            f"The texts are one {kind}, {texts[:40]!r}; send a list of them, if only of one."
        )
    array = np.array(texts, dtype=object).reshape(-1, 1)
    if prompt_name is None:
        return array_request({"text": array}, binary=binary)
    named = {"prompt_name": prompt_name}
    return array_request({"text": array}, binary=binary, parameters=named)


def pair_request(query: str, texts: Sequence[str], *, binary: bool = False) -> tuple[bytes, str]:
    """Return body and content type of a request with the query beside each text, a pair a row.

    Raises InputFault as `text_request` does.
    """
    if isinstance(texts, str | bytes):
        raise InputFault(f"The texts are one text, {texts[:40]!r}; send a list of them.")
    return row_pairs_request([(query, text) for text in texts], binary=binary)


def row_pairs_request(
    pairs: Sequence[tuple[str, str]], *, binary: bool = False
) -> tuple[bytes, str]:
    """Return body and content type of a request of queries with their texts."""
    columns = {name: [pair[place] for pair in pairs] for place, name in enumerate(PAIR)}
    arrays = {name: np.array(column, dtype=object) for name, column in columns.items()}
    return array_request(arrays, binary=binary)


def image_request(files: Sequence[bytes], *, binary: bool = True) -> tuple[bytes, str]:
    """Return body and content type of a request with one BYTES tensor, a row per image file.

    Without `binary` files are sent as base64. Raises InputFault for anything but a list of bytes.
    """
    if not isinstance(files, list | tuple) or not all(isinstance(file, bytes) for file in files):
        raise InputFault("The images must be a list of the bytes of JPEG or PNG files.")
    tensor: dict[str, Any] = {"name": "image", "shape": [len(files), 1], "datatype": BYTES}
    if not binary:
        tensor["data"] = [base64.b64encode(file).decode() for file in files]
        return json.dumps({"inputs": [tensor]}).encode(), JSON_TYPE
    tail = b"".join(struct.pack("<I", len(file)) + file for file in files)
    tensor["parameters"] = {"binary_data_size": len(tail)}
    parameters = {"binary_data_output": True}
    header = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
    return header + tail, f"{BINARY_TYPE};{HEADER_SIZE}{len(header)}"


def array_request(
    arrays: Mapping[str, Array],
    *,
    binary: bool = True,
    parameters: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[bytes, str]:
    """Return body and content type of a request with an array per input, rows on axis 0.

    An array of one axis is sent as a column. Raises InputFault for a type that KServe v2 does not
    have, ValueError for NaN or infinity in JSON, which cannot hold them.
    """
    columns = {
        name: array.reshape(-1, 1) if array.ndim == 1 else array for name, array in arrays.items()
    }
    inputs: list[dict[str, Any]] = [
        {"name": name, "shape": list(array.shape), "datatype": datatype(array)}
        for name, array in columns.items()
    ]
    if not binary:
        for tensor, array in zip(inputs, columns.values(), strict=True):
            tensor["data"] = _data(array)
        document: dict[str, Any] = {"inputs": inputs}
        if parameters:
            document["parameters"] = dict(parameters)
        return json.dumps(document, ensure_ascii=False, allow_nan=False).encode(), JSON_TYPE
    tails = [_raw(array) for array in columns.values()]
    for tensor, tail in zip(inputs, tails, strict=True):
        tensor["parameters"] = {"binary_data_size": len(tail)}
    header = json.dumps(
        {"inputs": inputs, "parameters": {"binary_data_output": True, **parameters}},
        ensure_ascii=False,
    ).encode()
    return b"".join((header, *tails)), f"{BINARY_TYPE};{HEADER_SIZE}{len(header)}"


def arrays_of(body: bytes, content_type: str) -> dict[str, Array]:
    """Return the arrays in an answer, by output, JSON or binary. Raises AnswerFault."""
    _, marker, size = content_type.partition(HEADER_SIZE)
    arrays: dict[str, Array] = {}
    try:
        header = int(size.partition(";")[0]) if marker else len(body)
        tail = body[header:]
        for output in json.loads(body[:header])["outputs"]:
            name = output.get("datatype", "FP32")
            if "data" in output:
                values = np.array(output["data"], object if name == BYTES else DATATYPES[name])
            else:
                length = int(output.get("parameters", {}).get("binary_data_size", len(tail)))
                values, tail = _array_of(tail[:length], name), tail[length:]
            arrays[output["name"]] = values.reshape(output["shape"])
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as fault:
        raise AnswerFault(
            f"The answer cannot be read ({fault!r}); it begins with {body[:80]!r}."
        ) from fault
    return arrays


def rows_of(body: bytes, content_type: str) -> Array:
    """Return the rows of the only output, or a classifier's logits. Raises AnswerFault."""
    arrays = arrays_of(body, content_type)
    if LOGITS in arrays:
        return arrays[LOGITS]
    if len(arrays) != 1:
        raise AnswerFault(
            "The answer cannot be read: it should have one output, it has "
            f"{', '.join(map(repr, arrays))}."
        )
    return next(iter(arrays.values()))


def error_sentence(body: bytes | str) -> str:
    """Return the sentence of an error response: its "error", or the beginning of its body.

    OpenAI's schema has an object there, with a "message".
    """
    try:
        sentence = json.loads(body)["error"]
        sentence = sentence.get("message", sentence) if isinstance(sentence, dict) else sentence
    except (ValueError, KeyError, TypeError):
        sentence = body.decode(errors="replace") if isinstance(body, bytes) else body
    text = " ".join(str(sentence).split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def datatype(array: Array) -> str:
    """Return KServe v2's name for an array's type; texts are BYTES. Raises InputFault."""
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
    return b"".join(struct.pack("<I", len(item)) + item for item in _utf8(array))


def _data(array: Array) -> list[Any]:
    if datatype(array) != BYTES:
        return array.reshape(-1).tolist()
    return [item.decode() for item in _utf8(array)]


def _utf8(array: Array) -> Iterator[bytes]:
    """Yield each text in UTF-8. Raises InputFault."""
    for index, text in enumerate(array.reshape(-1)):
        if not isinstance(text, str | bytes):
            raise InputFault(
                f"text[{index}] is {str(text)[:40]!r}, a {type(text).__name__}; it must be a str."
            )
        try:
            yield text.encode() if isinstance(text, str) else text.decode().encode()
        except (UnicodeEncodeError, UnicodeDecodeError) as fault:
            raise InputFault(
                f"text[{index}] is no Unicode ({fault.reason}); send only what UTF-8 can write."
            ) from fault


def _array_of(data: bytes, name: str) -> Array:
    """Return the flat array of a datatype whose raw bytes these are."""
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
