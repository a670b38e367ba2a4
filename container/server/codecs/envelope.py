"""What KServe v2 requests and responses have around their tensors: JSON header and binary tail.

Pure.
"""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from container.server.types import (
    BINARY_TYPE,
    JSON_TYPE,
    Array,
    InferenceRequest,
    RequestFault,
    Signature,
    TooLarge,
    UnsupportedEncoding,
)
from onboarding.manifest import Prompts

READ_TYPES = frozenset(
    {"", JSON_TYPE, BINARY_TYPE, "application/octet-stream", "application/x-www-form-urlencoded"}
)
"""Content types of JSON: its own, none, and what clients send that name none (boto3, curl)."""
DATATYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
}
"""Array types by KServe v2 datatype, little-endian as the binary extension has them."""
BYTES = "BYTES"
LARGEST_JSON_BYTES = 64 << 20
"""Of JSON that is read whole: it takes up to twenty times its bytes as objects."""
_HEADER_SIZE = "json-header-size="
_LONGEST_TIMEOUT_US = 2**53

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring = 3, 8, 4, 60


def read_envelope(
    body: bytes, content_type: str, *, has_inputs: bool = True
) -> tuple[dict[str, Any], bytes]:
    """Return the document of a body, which must have "inputs" or not, and the bytes after it.

    Raises RequestFault.
    """
    header, tail = (body, b"") if content_type == JSON_TYPE else _split(body, content_type)
    document = read_document(header)
    if has_inputs and "inputs" not in document:
        raise RequestFault('The request has no "inputs".')
    return document, tail


def read_document(header: bytes) -> dict[str, Any]:
    """Return the JSON object in a body or header. Raises RequestFault."""
    if len(header) > LARGEST_JSON_BYTES:
        raise TooLarge(
            f"The request's JSON has {len(header)} bytes; at most {LARGEST_JSON_BYTES} are read "
            "at once: send its tensors in the binary extension, or in several requests."
        )
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
    value = document.get("id")
    if value is not None and not isinstance(value, str):
        raise RequestFault(f'"id" must be a string, not {json_type(value)}.')
    return value


def timeout_seconds(document: Mapping[str, Any]) -> float | None:
    """Return the client's timeout: `parameters.timeout` in whole microseconds, 0 being no limit."""
    if "parameters" not in document:
        return None
    timeout = _parameters(document).get("timeout", 0)
    if type(timeout) is not int or not 0 <= timeout <= _LONGEST_TIMEOUT_US:
        raise RequestFault(
            f'"timeout" is {excerpt(timeout)}; it must be a whole number of microseconds, 0 being '
            "no limit."
        )
    return timeout / 1e6 if timeout else None


def prompt_prefix(
    document: Mapping[str, Any], prompts: Prompts | None, *, plain: bool = False
) -> str:
    """Return what is put before the request's texts: `parameters.prompt_name`, or the default.

    A `plain` request may also have the name as a field of its own. Triton's models say the same of
    a name that there is not.
    """
    name = _parameters(document).get("prompt_name") if "parameters" in document else None
    if plain and name is None:
        name = document.get("prompt_name")
    if name is None:
        return "" if prompts is None else prompts.prefix()
    if not isinstance(name, str):
        raise RequestFault(f'"prompt_name" is {excerpt(name)}; it must be a string.')
    if prompts is None or name not in prompts.texts:
        names = "no prompts" if prompts is None else ", ".join(map(repr, sorted(prompts.texts)))
        raise RequestFault(f"Unknown prompt {excerpt(name)}; the model has {names}.")
    return prompts.prefix(name)


def parameter(document: Mapping[str, Any], name: str) -> Any:
    """Return one of the request's parameters; None where it has none. Raises RequestFault."""
    return _parameters(document).get(name)


def wanted_outputs(
    document: Mapping[str, Any], names: Sequence[str]
) -> tuple[tuple[int, bool], ...]:
    """Return the outputs that the client requests, by index, each with whether it is binary.

    All of them when it names none. Each may be requested once: a request cannot make its response
    larger than the model's.
    """
    default = "parameters" in document and _boolean(
        _parameters(document), "binary_data_output", default=False
    )
    outputs = document.get("outputs")
    if outputs is None or outputs == []:
        return tuple([(index, default) for index in range(len(names))])
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise RequestFault('"outputs" must be a list of objects with a "name".')
    if len(outputs) > len(names):
        raise RequestFault(
            f'"outputs" names {len(outputs)} outputs; the model gives {len(names)}, each to be '
            "asked for once."
        )
    wanted: dict[int, bool] = {}
    for output in outputs:
        if output.get("name") not in names:
            raise RequestFault(
                f"Unknown output {excerpt(output.get('name'))}; the model gives "
                f"{', '.join(map(repr, names))}."
            )
        parameters = output.get("parameters")
        wanted[names.index(output["name"])] = (
            _boolean(parameters, "binary_data", default=default)
            if isinstance(parameters, dict)
            else default
        )
    if len(wanted) != len(outputs):
        raise RequestFault('"outputs" asks for the same output twice.')
    return tuple(wanted.items())


def plain_texts(inputs: object) -> Sequence[str] | None:
    """Return the texts of plain JSON, one or a list of them; None of KServe's tensors."""
    texts = [inputs] if isinstance(inputs, str) else inputs
    return texts if isinstance(texts, list) and set(map(type, texts)) == {str} else None


def kserve_request(
    document: Mapping[str, Any], rows: Sequence[Any], names: Sequence[str]
) -> InferenceRequest:
    """Return the request of some rows, and how its client wants the outputs of these names.

    Raises RequestFault.
    """
    return InferenceRequest(
        rows=rows,
        wanted=wanted_outputs(document, names),
        id=request_id(document),
        timeout_seconds=timeout_seconds(document),
    )


def binary_size(tensor: Mapping[str, Any]) -> Any:
    """Return what an input gives as its size in the binary tail; None where it gives none."""
    parameters = tensor.get("parameters")
    return parameters.get("binary_data_size") if isinstance(parameters, dict) else None


def claimed_pieces(inputs: Sequence[Mapping[str, Any]], tail: bytes) -> dict[str, bytes]:
    """Return the part of the tail that each input claims, by name. Raises RequestFault."""
    pieces, offset = {}, 0
    for tensor in inputs:
        size = binary_size(tensor)
        if size is None:
            continue
        if type(size) is not int or not 0 <= size <= len(tail) - offset:
            raise RequestFault(
                f"Input {tensor['name']!r} has binary_data_size {excerpt(size)} but the body "
                f"carries {len(tail) - offset} more bytes after its header."
            )
        pieces[tensor["name"]] = tail[offset : offset + size]
        offset += size
    if offset != len(tail):
        raise RequestFault(
            f"The body carries {len(tail) - offset} bytes after its header that no input claims."
        )
    return pieces


def encode_outputs(
    signature: Signature,
    id: str | None,
    arrays: Iterable[tuple[str, str, Array, bool]],
) -> tuple[bytes, str]:
    """Return body and content type of a response.

    `arrays` are the outputs' names, datatypes, contiguous values, and whether each is binary.
    """
    outputs, tails = [], []
    for name, datatype, array, is_binary in arrays:
        output: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if is_binary:
            tails.append(_binary(array, datatype))
            output["parameters"] = {"binary_data_size": len(tails[-1])}
        else:
            flat = array.reshape(-1)
            output["data"] = [text.decode() for text in flat] if datatype == BYTES else flat
        outputs.append(output)
    document: dict[str, Any] = {
        "model_name": signature.model,
        "model_version": "1",
        "outputs": outputs,
    }
    if id is not None:
        document["id"] = id
    header = json_bytes(document)
    if not tails:
        return header, JSON_TYPE
    return b"".join((header, *tails)), f"{BINARY_TYPE};{_HEADER_SIZE}{len(header)}"


def _binary(array: Array, datatype: str) -> bytes:
    """Return values as the binary extension has them: of BYTES each after its length."""
    if datatype != BYTES:
        return array.astype(DATATYPES[datatype], copy=False).tobytes()
    return b"".join([struct.pack("<I", len(text)) + text for text in array.reshape(-1)])


def json_bytes(document: Mapping[str, Any]) -> bytes:
    """Return a document as JSON; numpy arrays become lists, NaN and infinities null.

    The binary extension carries those as they are.
    """
    data: bytes = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return data


def excerpt(value: object) -> str:
    """Return a client's value, short enough for one sentence."""
    text = _SHORT.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def json_type(value: object) -> str:
    """Return JSON's name for a value's type."""
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


def _split(body: bytes, content_type: str) -> tuple[bytes, bytes]:
    """Return the JSON header and the binary tail of a body."""
    base, _, parameters = content_type.partition(";")
    name = base.strip().lower()
    if name not in READ_TYPES:
        raise UnsupportedEncoding(
            f"Content-Type is {base[:60]!r}; {JSON_TYPE} and {BINARY_TYPE} are read."
        )
    if name != BINARY_TYPE:
        return body, b""
    for parameter in parameters.split(";"):
        key, is_size, size = parameter.strip().partition(_HEADER_SIZE)
        if is_size and not key:
            break
    else:
        return body, b""
    if not size.isascii() or not size.isdigit() or len(size) > 12 or int(size) > len(body):
        raise RequestFault(
            f"json-header-size is {size[:20]!r}; it must be a number of bytes from 0 to the "
            f"body's {len(body)}."
        )
    return body[: int(size)], body[int(size) :]


def _parameters(document: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = document.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise RequestFault(f'"parameters" must be an object, not {json_type(parameters)}.')
    return parameters


def _boolean(parameters: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = parameters.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RequestFault(f'"{name}" is {excerpt(value)}; it must be true or false.')
    return value
