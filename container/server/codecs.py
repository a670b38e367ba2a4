"""Bytes to requests and answers to bytes: KServe v2 JSON, its binary extension, and plain `{"inputs": ["text"]}`. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson

from container.server.types import RequestFault, Signature, TextRequest

JSON_TYPE = "application/json"
BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
_HEADER_SIZE = "json-header-size="


def decoded(body: bytes, content_type: str, signature: Signature) -> TextRequest:
    """The request in a body. Raises RequestFault with the sentence for the client."""
    header, tail = _split(body, content_type)
    document = _document(header)
    if "inputs" not in document:
        raise RequestFault('The request has no "inputs".')
    inputs = document["inputs"]
    if isinstance(inputs, str) or (isinstance(inputs, list) and inputs and all(isinstance(item, str) for item in inputs)):
        return TextRequest(texts=(inputs,) if isinstance(inputs, str) else tuple(inputs), dialect="plain")
    return _kserve(document, tail, signature)


def encoded(rows: np.ndarray[Any, Any], request: TextRequest, signature: Signature) -> tuple[bytes, str]:
    """Body and content type of an answer; `rows` is float32 [texts, ...], contiguous."""
    if request.dialect == "plain":
        return _json({"outputs": rows}), JSON_TYPE
    output: dict[str, Any] = {"name": signature.output_name, "datatype": "FP32", "shape": list(rows.shape)}
    document: dict[str, Any] = {"model_name": signature.model, "model_version": signature.version, "outputs": [output]}
    if request.id is not None:
        document["id"] = request.id
    if not request.binary:
        output["data"] = rows.reshape(-1)
        return _json(document), JSON_TYPE
    output["parameters"] = {"binary_data_size": rows.nbytes}
    header = _json(document)
    return header + rows.astype("<f4", copy=False).tobytes(), f"{BINARY_TYPE};{_HEADER_SIZE}{len(header)}"


def encoded_fault(sentence: str) -> bytes:
    """The body of every answer that is not one."""
    return _json({"error": sentence})


def _json(document: Mapping[str, Any]) -> bytes:
    data: bytes = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return data


def _split(body: bytes, content_type: str) -> tuple[bytes, bytes]:
    """The JSON header and the binary tail of a body."""
    base, _, parameters = content_type.partition(";")
    if base.strip().lower() != BINARY_TYPE:
        return body, b""
    stripped = (part.strip() for part in parameters.split(";"))
    size = next((part.removeprefix(_HEADER_SIZE) for part in stripped if part.startswith(_HEADER_SIZE)), None)
    if size is None:
        return body, b""
    if not size.isascii() or not size.isdigit() or len(size) > 12 or int(size) > len(body):
        raise RequestFault(f"json-header-size is {size[:20]!r}; it must be a number of bytes from 0 to the body's {len(body)}.")
    return body[: int(size)], body[int(size) :]


def _document(header: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(header)
    except orjson.JSONDecodeError as fault:
        raise RequestFault(f"The request is not JSON: {fault.msg} at character {fault.pos}.") from fault
    if not isinstance(document, dict):
        raise RequestFault(f"The request must be a JSON object, not {_kind(document)}.")
    return document


def _kserve(document: Mapping[str, Any], tail: bytes, signature: Signature) -> TextRequest:
    inputs = document["inputs"]
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise RequestFault(f'"inputs" must be a list of texts or a list of one tensor named {signature.input_name!r}.')
    tensor = inputs[0]
    if tensor.get("name") != signature.input_name:
        raise RequestFault(f"Unknown input {_shown(tensor.get('name'))}; the model takes {signature.input_name!r}.")
    if tensor.get("datatype") != "BYTES":
        raise RequestFault(f"Input {signature.input_name!r} has datatype {_shown(tensor.get('datatype'))}; it must be 'BYTES'.")
    rows = _row_count(tensor.get("shape"), signature.input_name)
    texts = tuple(_texts(tensor, tail, signature.input_name))
    if len(texts) != rows:
        raise RequestFault(f"Input {signature.input_name!r} has shape {tensor['shape']} but {len(texts)} texts.")
    identity = document.get("id")
    if identity is not None and not isinstance(identity, str):
        raise RequestFault(f'"id" must be a string, not {_kind(identity)}.')
    return TextRequest(texts=texts, dialect="kserve", binary=_wants_binary(document, signature), id=identity)


def _row_count(shape: object, name: str) -> int:
    """Rows of shape [n] or [n, 1]."""
    whole = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if not isinstance(shape, list) or not whole or len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] != 1):
        raise RequestFault(f"Input {name!r} has shape {_shown(shape)}; it must be [texts, 1].")
    return int(shape[0])


def _texts(tensor: Mapping[str, Any], tail: bytes, name: str) -> Iterator[str]:
    parameters = tensor.get("parameters")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is not None:
        if type(size) is not int or size != len(tail):
            carried = f"the body carries {len(tail)} bytes after its header"
            raise RequestFault(f"Input {name!r} has binary_data_size {_shown(size)} but {carried}.")
        yield from _binary_texts(tail, name)
    elif tail:
        raise RequestFault(f"The body carries {len(tail)} bytes after its header that no input claims with binary_data_size.")
    else:
        yield from _json_texts(tensor.get("data"), name)


def _json_texts(data: object, name: str) -> Iterator[str]:
    """The texts of flat or nested data."""
    if not isinstance(data, list):
        raise RequestFault(f'Input {name!r} needs "data" with a list of texts.')
    for item in data:
        text = item[0] if isinstance(item, list) and len(item) == 1 else item
        if not isinstance(text, str):
            raise RequestFault(f"Input {name!r} holds {_kind(text)} where a text belongs.")
        yield text


def _binary_texts(tail: bytes, name: str) -> Iterator[str]:
    """Each text is its length as 4 bytes, little-endian, then UTF-8."""
    offset = 0
    while offset < len(tail):
        end = offset + 4
        size = struct.unpack_from("<I", tail, offset)[0] if end <= len(tail) else len(tail)
        if end + size > len(tail):
            raise RequestFault(f"Input {name!r} ends inside a text: byte {offset} announces more bytes than the body carries.")
        try:
            yield tail[end : end + size].decode("utf-8")
        except UnicodeDecodeError as fault:
            reason = f"{fault.reason} at byte {end + fault.start}"
            raise RequestFault(f"Input {name!r} holds text that is not UTF-8: {reason}.") from fault
        offset = end + size


def _wants_binary(document: Mapping[str, Any], signature: Signature) -> bool:
    """Whether the client asks for binary answers, for all outputs or for the one there is."""
    parameters = document.get("parameters")
    default = isinstance(parameters, dict) and parameters.get("binary_data_output") is True
    outputs = document.get("outputs")
    if outputs is None or outputs == []:
        return default
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise RequestFault('"outputs" must be a list of objects with a "name".')
    for output in outputs:
        if output.get("name") != signature.output_name:
            raise RequestFault(f"Unknown output {_shown(output.get('name'))}; the model gives {signature.output_name!r}.")
    chosen = outputs[0].get("parameters")
    return bool(chosen.get("binary_data", default)) if isinstance(chosen, dict) else default


def _shown(value: object) -> str:
    """A client's value, short enough for one sentence."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")
