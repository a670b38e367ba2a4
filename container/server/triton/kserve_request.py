"""KServe v2 inference requests, checked and written again for Triton.

What Triton reads is this module's own JSON and lengths, so no two parsers can differ about a
client's bytes: a duplicate key, a length that lies or lists in lists without end reach nobody.
Names, datatypes and shapes that the model does not have stay Triton's to refuse; numbers that a
datatype cannot hold, or that lie beyond a network's table, never reach it. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import orjson

from container.server.codecs.envelope import (
    DATATYPES,
    claimed_pieces,
    excerpt,
    json_type,
    read_envelope,
    request_id,
)
from container.server.codecs.images import FILE_TYPES
from container.server.codecs.tensors import NOUNS, TAKES, array_of, refuse_beyond_table
from container.server.codecs.texts import binary_parts
from container.server.types import BINARY_TYPE, JSON_TYPE, RequestFault

BYTES = "BYTES"
IMAGE = "image"
"""The input of an image classifier."""
SIZES = {name: dtype.itemsize for name, dtype in DATATYPES.items()} | {"BF16": 2}
"""Bytes of an element, by datatype; an element of BYTES has its length before it."""
MOST_LISTS, MOST_AXES, LARGEST_AXIS = 16, 16, 2**31 - 1
LENGTH_BYTES = 4
RAW = re.compile(r"json-header-size=0+\s*(?:;|$)")
VALUES: dict[str, tuple[set[type], str]] = {
    name: (TAKES[dtype.kind], NOUNS[dtype.kind]) for name, dtype in DATATYPES.items()
} | {"BF16": (TAKES["f"], NOUNS["f"]), BYTES: ({str}, "texts")}
"""The JSON values that a datatype takes, and their noun."""
SCALARS = (bool, int, float, str)
PARAMETERS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(
        ("binary_data", "binary_data_output", "sequence_start", "sequence_end"), (bool,)
    ),
    **dict.fromkeys(("binary_data_size", "timeout", "priority", "classification"), (int,)),
    "sequence_id": (int, str),
}
"""The types of the parameters that Triton itself reads; its whole numbers are not negative."""
LARGEST_NUMBER = 2**63 - 1
Tables = Mapping[str, int]
"""Rows of the table in which the network looks up an input's values, by input."""
NO_TABLES: Tables = MappingProxyType({})


def checked_request(
    body: bytes, content_type: str, tables: Tables = NO_TABLES
) -> tuple[bytes, str]:
    """Return body and content type of the same request, written again. Raises RequestFault.

    A body that is empty, or has a header of no bytes, is Triton's raw input: one element of the
    model's only input, without a length that could lie. A JPEG or PNG file becomes one image.
    """
    if content_type.partition(";")[0].strip().lower() in FILE_TYPES:
        return _file_request(body)
    if is_raw(body, content_type):
        if tables:
            raise RequestFault(
                f"The body has no header, so nobody can check the values of {', '.join(tables)}; "
                "send the inputs with their names, shapes and datatypes."
            )
        return body, f"{BINARY_TYPE};json-header-size=0"
    document, tail = read_envelope(body, content_type)
    written: dict[str, Any] = {"inputs": _inputs(document["inputs"], tail, tables)}
    if document.get("outputs") is not None:
        written["outputs"] = _outputs(document["outputs"])
    if (id := request_id(document)) is not None:
        written["id"] = id
    if parameters := _parameters(document, "The request"):
        written["parameters"] = parameters
    header = orjson.dumps(written)
    if not tail:
        return header, JSON_TYPE
    return header + tail, f"{BINARY_TYPE};json-header-size={len(header)}"


def _file_request(file: bytes) -> tuple[bytes, str]:
    """Return the request of one image file."""
    tail = len(file).to_bytes(LENGTH_BYTES, "little") + file
    tensor = {"name": IMAGE, "shape": [1, 1], "datatype": BYTES}
    header = orjson.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": len(tail)}}]})
    return header + tail, f"{BINARY_TYPE};json-header-size={len(header)}"


def is_raw(body: bytes, content_type: str) -> bool:
    """Return True where Triton reads no header, but one element."""
    base, _, parameters = content_type.partition(";")
    kind = base.strip().lower()
    if kind == BINARY_TYPE:
        return RAW.search(parameters) is not None
    return not body and kind in ("", JSON_TYPE)


def _inputs(inputs: object, tail: bytes, tables: Tables) -> list[dict[str, Any]]:
    """Return the inputs written again, each with exactly the elements that its shape has."""
    records: dict[str, dict[str, Any]] = {}
    for tensor in _records(inputs, "inputs"):
        name = tensor["name"]
        if name in records:
            raise RequestFault(f"Input {excerpt(name)} is there twice; send each input once.")
        records[name] = tensor
    pieces = claimed_pieces(list(records.values()), cast(bytes, memoryview(tail)))
    written = []
    for name, tensor in records.items():
        shape, datatype = _shape(tensor), _datatype(tensor)
        record: dict[str, Any] = {"name": name, "shape": shape, "datatype": datatype}
        parameters = _parameters(tensor, f"Input {name!r}")
        if name in pieces:
            _check_elements(pieces[name], record, math.prod(shape))
        else:
            record["data"] = _data(tensor, datatype, math.prod(shape))
        _check_numbers(pieces.get(name), record, tables.get(name))
        if parameters:
            record["parameters"] = parameters
        written.append(record)
    return written


def _outputs(outputs: object) -> list[dict[str, Any]]:
    """Return the requested outputs written again; each once, so that no answer is multiplied."""
    written: dict[str, dict[str, Any]] = {}
    for output in _records(outputs, "outputs"):
        name = output["name"]
        if name in written:
            raise RequestFault(f"Output {excerpt(name)} is there twice; ask for each output once.")
        written[name] = {"name": name}
        if parameters := _parameters(output, f"Output {name!r}"):
            written[name]["parameters"] = parameters
    return list(written.values())


def _records(records: object, field: str) -> list[dict[str, Any]]:
    if not isinstance(records, list) or not all(
        isinstance(record, dict) and isinstance(record.get("name"), str) for record in records
    ):
        raise RequestFault(f'"{field}" must be a list of objects, each with a "name".')
    return records


def _shape(tensor: Mapping[str, Any]) -> list[int]:
    shape = tensor.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) > MOST_AXES
        or not all(type(size) is int and 0 <= size <= LARGEST_AXIS for size in shape)
    ):
        raise RequestFault(
            f"Input {tensor['name']!r} has shape {excerpt(shape)}; it must be a list of at most "
            f"{MOST_AXES} whole numbers from 0 to {LARGEST_AXIS}."
        )
    return shape


def _datatype(tensor: Mapping[str, Any]) -> str:
    datatype = tensor.get("datatype")
    if not isinstance(datatype, str) or (datatype != BYTES and datatype not in SIZES):
        raise RequestFault(
            f"Input {tensor['name']!r} has datatype {excerpt(datatype)}; allowed: {BYTES}, "
            f"{', '.join(SIZES)}."
        )
    return datatype


def _parameters(record: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return a record's parameters; none may name memory of the server."""
    parameters = record.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise RequestFault(
            f'{owner} has "parameters" that are {json_type(parameters)}; they must be an object.'
        )
    for key, value in parameters.items():
        if not isinstance(value, SCALARS) or key.startswith("shared_memory"):
            raise RequestFault(
                f"{owner} has parameter {excerpt(key)} {excerpt(value)}; numbers, strings and "
                "booleans are taken, and no shared memory."
            )
        kinds = PARAMETERS.get(key, SCALARS)
        if type(value) not in kinds or (
            type(value) is int and not (key not in PARAMETERS or 0 <= value <= LARGEST_NUMBER)
        ):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise RequestFault(
                f"{owner} has parameter {excerpt(key)} {excerpt(value)}; it must be {names}, and "
                "no number below 0."
            )
    return parameters


def _data(tensor: Mapping[str, Any], datatype: str, elements: int) -> list[Any]:
    """Return an input's data as one list of as many elements as the shape has."""
    data, name = tensor.get("data"), tensor["name"]
    if not isinstance(data, list):
        raise RequestFault(f'Input {name!r} needs "data" with a list of values.')
    for _ in range(MOST_LISTS):
        kinds = set(map(type, data))
        if list not in kinds:
            break
        if kinds != {list}:
            raise RequestFault(f"Input {name!r} has data that mixes lists and values.")
        data = list(chain.from_iterable(data))
    else:
        raise RequestFault(f"Input {name!r} has data in more than {MOST_LISTS} lists in lists.")
    values, noun = VALUES[datatype]
    if not kinds <= values:
        raise RequestFault(f"Input {name!r} is {datatype}, so its data must be {noun}.")
    if len(data) != elements:
        raise RequestFault(f"Input {name!r} has shape {tensor['shape']} but {len(data)} values.")
    return data


def _check_elements(piece: bytes, record: Mapping[str, Any], elements: int) -> None:
    """Refuse an input whose bytes are not exactly the elements of its shape."""
    name, shape = record["name"], record["shape"]
    if record["datatype"] == BYTES:
        parts = binary_parts(piece, name, "an element")
        count = sum(1 for _ in islice(parts, elements + 1))
    else:
        count, rest = divmod(len(piece), SIZES[record["datatype"]])
        if rest:
            raise RequestFault(
                f"Input {name!r} has {len(piece)} bytes, no whole number of {record['datatype']} "
                "values."
            )
    if count != elements:
        raise RequestFault(f"Input {name!r} has shape {shape} but {count} values.")


def _check_numbers(piece: bytes | None, record: Mapping[str, Any], rows: int | None) -> None:
    """Refuse numbers that the datatype cannot hold, and integers beyond a table of `rows`."""
    name, datatype = record["name"], record["datatype"]
    dtype = DATATYPES.get(datatype)
    if dtype is None or dtype.kind == "b":
        return
    if piece is None:
        data = record["data"]
        values = array_of([min(data), max(data)] if data else [], name, datatype)
    elif rows is None:
        return
    else:
        values = np.frombuffer(piece, dtype)
    if dtype.kind in "iu":
        refuse_beyond_table(values, name, rows)
