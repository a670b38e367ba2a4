"""Texts in, float32 rows out, as bytes.

KServe v2 JSON, its binary extension, and plain `{"inputs": ["text"]}`. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from container.server.codecs.envelope import (
    JSON_TYPE,
    binary_answer,
    excerpt,
    json_bytes,
    json_type,
    read_envelope,
    request_id,
    timeout_seconds,
    wanted_outputs,
)
from container.server.types import RequestFault, Signature, TextRequest


def decode_request(body: bytes, content_type: str, signature: Signature) -> TextRequest:
    """The request in a body. Raises RequestFault with the sentence for the client."""
    document, tail = read_envelope(body, content_type)
    inputs = document["inputs"]
    if isinstance(inputs, str) or (isinstance(inputs, list) and inputs and _are_all_texts(inputs)):
        _refuse_tail(tail)
        texts = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        return TextRequest(texts=texts, dialect="plain", timeout_seconds=timeout_seconds(document))
    return _kserve(document, tail, signature)


def encode_response(
    rows: np.ndarray[Any, Any], request: TextRequest, signature: Signature
) -> tuple[bytes, str]:
    """Body and content type of an answer; `rows` is float32 [texts, ...], contiguous."""
    if request.dialect == "plain":
        return json_bytes({"outputs": rows}), JSON_TYPE
    output: dict[str, Any] = {
        "name": signature.output_name,
        "datatype": "FP32",
        "shape": list(rows.shape),
    }
    document: dict[str, Any] = {
        "model_name": signature.model,
        "model_version": signature.version,
        "outputs": [output],
    }
    if request.id is not None:
        document["id"] = request.id
    if not request.binary:
        output["data"] = rows.reshape(-1)
        return json_bytes(document), JSON_TYPE
    output["parameters"] = {"binary_data_size": rows.nbytes}
    return binary_answer(document, (rows.astype("<f4", copy=False).tobytes(),))


def _are_all_texts(items: list[Any]) -> bool:
    return {type(item) for item in items} == {str}


def _kserve(document: Mapping[str, Any], tail: bytes, signature: Signature) -> TextRequest:
    inputs = document["inputs"]
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise RequestFault(
            '"inputs" must be a list of texts or a list of one tensor named '
            f"{signature.input_name!r}."
        )
    tensor = inputs[0]
    if tensor.get("name") != signature.input_name:
        raise RequestFault(
            f"Unknown input {excerpt(tensor.get('name'))}; the model takes "
            f"{signature.input_name!r}."
        )
    if tensor.get("datatype") != "BYTES":
        raise RequestFault(
            f"Input {signature.input_name!r} has datatype {excerpt(tensor.get('datatype'))}; it "
            "must be 'BYTES'."
        )
    rows = _row_count(tensor.get("shape"), signature.input_name)
    texts = _texts(tensor, tail, signature.input_name)
    if len(texts) != rows:
        raise RequestFault(
            f"Input {signature.input_name!r} has shape {tensor['shape']} but {len(texts)} texts."
        )
    binary = wanted_outputs(document, (signature.output_name,))[0][1]
    return TextRequest(
        texts=texts,
        dialect="kserve",
        binary=binary,
        id=request_id(document),
        timeout_seconds=timeout_seconds(document),
    )


def _row_count(shape: object, name: str) -> int:
    """Rows of shape [n] or [n, 1]."""
    if (
        isinstance(shape, list)
        and len(shape) in (1, 2)
        and (len(shape) == 1 or (type(shape[1]) is int and shape[1] == 1))
    ):
        rows = shape[0]
        if type(rows) is int and rows >= 0:
            return rows
    raise RequestFault(f"Input {name!r} has shape {excerpt(shape)}; it must be [texts, 1].")


def _texts(tensor: Mapping[str, Any], tail: bytes, name: str) -> tuple[str, ...]:
    parameters = tensor.get("parameters")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is not None:
        if type(size) is not int or size != len(tail):
            carried = f"the body carries {len(tail)} bytes after its header"
            raise RequestFault(
                f"Input {name!r} has binary_data_size {excerpt(size)} but {carried}."
            )
        return tuple(_binary_texts(tail, name))
    _refuse_tail(tail)
    return tuple([_json_text(item, name) for item in _text_list(tensor.get("data"), name)])


def _refuse_tail(tail: bytes) -> None:
    if tail:
        raise RequestFault(
            f"The body carries {len(tail)} bytes after its header that no input claims with "
            "binary_data_size."
        )


def _text_list(data: object, name: str) -> list[Any]:
    if not isinstance(data, list):
        raise RequestFault(f'Input {name!r} needs "data" with a list of texts.')
    return data


def _json_text(item: object, name: str) -> str:
    """A text of flat or nested data."""
    text = item[0] if isinstance(item, list) and len(item) == 1 else item
    if not isinstance(text, str):
        raise RequestFault(f"Input {name!r} holds {json_type(text)} where a text belongs.")
    return text


def _binary_texts(tail: bytes, name: str) -> Iterator[str]:
    """Each text is its length as 4 bytes, little-endian, then UTF-8."""
    offset = 0
    while offset < len(tail):
        end = offset + 4
        size = struct.unpack_from("<I", tail, offset)[0] if end <= len(tail) else len(tail)
        if end + size > len(tail):
            raise RequestFault(
                f"Input {name!r} ends inside a text: byte {offset} announces more bytes than the "
                "body carries."
            )
        try:
            yield tail[end : end + size].decode("utf-8")
        except UnicodeDecodeError as fault:
            reason = f"{fault.reason} at byte {end + fault.start}"
            raise RequestFault(f"Input {name!r} holds text that is not UTF-8: {reason}.") from fault
        offset = end + size
