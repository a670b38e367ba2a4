"""What every KServe v2 request and answer has around its tensors: JSON header, binary tail, id, wanted outputs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from container.server.types import RequestFault

JSON_TYPE = "application/json"
BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
_HEADER_SIZE = "json-header-size="


def opened(body: bytes, content_type: str) -> tuple[dict[str, Any], bytes]:
    """The document of a body, which has "inputs", and the bytes after it. Raises RequestFault."""
    header, tail = _split(body, content_type)
    document = _document(header)
    if "inputs" not in document:
        raise RequestFault('The request has no "inputs".')
    return document, tail


def identity(document: Mapping[str, Any]) -> str | None:
    """The id that the answer repeats."""
    found = document.get("id")
    if found is not None and not isinstance(found, str):
        raise RequestFault(f'"id" must be a string, not {kind(found)}.')
    return found


def wanted_outputs(document: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[int, bool], ...]:
    """Which outputs the client wants, by place, and whether each is to be binary; all of them when it names none."""
    parameters = document.get("parameters")
    default = isinstance(parameters, dict) and parameters.get("binary_data_output") is True
    outputs = document.get("outputs")
    if outputs is None or outputs == []:
        return tuple((place, default) for place in range(len(names)))
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise RequestFault('"outputs" must be a list of objects with a "name".')
    return tuple((_place(output, names), _is_binary(output, default)) for output in outputs)


def json_bytes(document: Mapping[str, Any]) -> bytes:
    """A document; numpy arrays are lists in it."""
    data: bytes = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return data


def binary_answer(document: Mapping[str, Any], tails: Sequence[bytes]) -> tuple[bytes, str]:
    """Body and content type of an answer with a binary tail."""
    header = json_bytes(document)
    return b"".join((header, *tails)), f"{BINARY_TYPE};{_HEADER_SIZE}{len(header)}"


def encoded_fault(sentence: str) -> bytes:
    """The body of every answer that is not one."""
    return json_bytes({"error": sentence})


def shown(value: object) -> str:
    """A client's value, short enough for one sentence."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def kind(value: object) -> str:
    """What JSON calls a value."""
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


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
        raise RequestFault(f"The request must be a JSON object, not {kind(document)}.")
    return document


def _place(output: Mapping[str, Any], names: Sequence[str]) -> int:
    if output.get("name") in names:
        return names.index(output["name"])
    gives = ", ".join(map(repr, names))
    raise RequestFault(f"Unknown output {shown(output.get('name'))}; the model gives {gives}.")


def _is_binary(output: Mapping[str, Any], default: bool) -> bool:
    chosen = output.get("parameters")
    return bool(chosen.get("binary_data", default)) if isinstance(chosen, dict) else default
