"""What every KServe v2 request and answer has around its tensors.

JSON header, binary tail, id, wanted outputs. Pure.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from container.server.types import RequestFault, UnsupportedEncoding

JSON_TYPE = "application/json"
BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
READ_TYPES = frozenset(
    {"", JSON_TYPE, BINARY_TYPE, "application/octet-stream", "application/x-www-form-urlencoded"}
)
"""Content types of JSON: its own, none, and what clients send that name none (boto3, curl)."""
_HEADER_SIZE = "json-header-size="
_LONGEST_TIMEOUT_US = 2**53

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring = 3, 8, 4, 60


def read_envelope(body: bytes, content_type: str) -> tuple[dict[str, Any], bytes]:
    """The document of a body, which has "inputs", and the bytes after it. Raises RequestFault."""
    header, tail = (body, b"") if content_type == JSON_TYPE else _split(body, content_type)
    document = read_document(header)
    if "inputs" not in document:
        raise RequestFault('The request has no "inputs".')
    return document, tail


def read_document(header: bytes) -> dict[str, Any]:
    """The JSON object in a body or header. Raises RequestFault."""
    try:
        document = orjson.loads(header)
    except orjson.JSONDecodeError as fault:
        raise RequestFault(
            f"The request is not JSON: {fault.msg} at character {fault.pos}."
        ) from fault
    if not isinstance(document, dict):
        raise RequestFault(f"The request must be a JSON object, not {json_type(document)}.")
    return document


def request_id(document: Mapping[str, Any]) -> str | None:
    """Return the request's id, which the response repeats."""
    found = document.get("id")
    if found is not None and not isinstance(found, str):
        raise RequestFault(f'"id" must be a string, not {json_type(found)}.')
    return found


def timeout_seconds(document: Mapping[str, Any]) -> float | None:
    """Return the client's timeout: `parameters.timeout` in whole microseconds, 0 being no limit."""
    if "parameters" not in document:
        return None
    found = _parameters(document).get("timeout", 0)
    if type(found) is not int or not 0 <= found <= _LONGEST_TIMEOUT_US:
        raise RequestFault(
            f'"timeout" is {excerpt(found)}; it must be a whole number of microseconds, 0 being '
            "no limit."
        )
    return found / 1e6 if found else None


def wanted_outputs(
    document: Mapping[str, Any], names: Sequence[str]
) -> tuple[tuple[int, bool], ...]:
    """Return the outputs that the client requests, by place, each with whether it is binary.

    All of them when it names none. Each may be requested once: a request cannot make its response
    larger than the model's.
    """
    default = "parameters" in document and _boolean(
        _parameters(document), "binary_data_output", default=False
    )
    outputs = document.get("outputs")
    if outputs is None or outputs == []:
        return tuple([(place, default) for place in range(len(names))])
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise RequestFault('"outputs" must be a list of objects with a "name".')
    if len(outputs) > len(names):
        raise RequestFault(
            f'"outputs" names {len(outputs)} outputs; the model gives {len(names)}, each to be '
            "asked for once."
        )
    wanted = tuple((_place(output, names), _is_binary(output, default)) for output in outputs)
    if len({place for place, _ in wanted}) != len(wanted):
        raise RequestFault('"outputs" asks for the same output twice.')
    return wanted


def json_bytes(document: Mapping[str, Any]) -> bytes:
    """Return a document as JSON; numpy arrays become lists, NaN and infinities null.

    The binary extension carries those as they are.
    """
    data: bytes = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return data


def binary_answer(document: Mapping[str, Any], tails: Sequence[bytes]) -> tuple[bytes, str]:
    """Body and content type of an answer with a binary tail."""
    header = json_bytes(document)
    return b"".join((header, *tails)), f"{BINARY_TYPE};{_HEADER_SIZE}{len(header)}"


def fault_document(sentence: str) -> bytes:
    """Return the body of an error response."""
    return json_bytes({"error": sentence})


def excerpt(value: object) -> str:
    """A client's value, short enough for one sentence."""
    text = _SHORT.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def json_type(value: object) -> str:
    """Return JSON's name for a value's type."""
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


def _split(body: bytes, content_type: str) -> tuple[bytes, bytes]:
    """The JSON header and the binary tail of a body."""
    base, _, parameters = content_type.partition(";")
    named = base.strip().lower()
    if named not in READ_TYPES:
        raise UnsupportedEncoding(
            f"Content-Type is {base[:60]!r}; {JSON_TYPE} and {BINARY_TYPE} are read."
        )
    if named != BINARY_TYPE:
        return body, b""
    stripped = (part.strip() for part in parameters.split(";"))
    size = next(
        (part.removeprefix(_HEADER_SIZE) for part in stripped if part.startswith(_HEADER_SIZE)),
        None,
    )
    if size is None:
        return body, b""
    if not size.isascii() or not size.isdigit() or len(size) > 12 or int(size) > len(body):
        raise RequestFault(
            f"json-header-size is {size[:20]!r}; it must be a number of bytes from 0 to the "
            f"body's {len(body)}."
        )
    return body[: int(size)], body[int(size) :]


def _parameters(document: Mapping[str, Any]) -> Mapping[str, Any]:
    found = document.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RequestFault(f'"parameters" must be an object, not {json_type(found)}.')
    return found


def _place(output: Mapping[str, Any], names: Sequence[str]) -> int:
    if output.get("name") in names:
        return names.index(output["name"])
    gives = ", ".join(map(repr, names))
    raise RequestFault(f"Unknown output {excerpt(output.get('name'))}; the model gives {gives}.")


def _is_binary(output: Mapping[str, Any], default: bool) -> bool:
    chosen = output.get("parameters")
    return _boolean(chosen, "binary_data", default=default) if isinstance(chosen, dict) else default


def _boolean(parameters: Mapping[str, Any], name: str, *, default: bool) -> bool:
    found = parameters.get(name)
    if found is None:
        return default
    if not isinstance(found, bool):
        raise RequestFault(f'"{name}" is {excerpt(found)}; it must be true or false.')
    return found
