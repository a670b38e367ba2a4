"""Tensors in, tensors out, as bytes: KServe v2 JSON and its binary extension. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from container.server.codecs.envelope import (
    DATATYPES,
    claimed_pieces,
    encode_outputs,
    excerpt,
    kserve_request,
    read_envelope,
)
from container.server.types import Array, InferenceRequest, RequestFault, Signature
from onboarding.manifest import ProfileRecord, TensorRecord

TensorRow = tuple[Array, ...]
"""One row of every input, in the signature's order."""

TAKES: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
"""The JSON values that an array kind takes, by numpy's letter; a boolean is no number."""
NOUNS = {"b": "booleans", "i": "whole numbers", "u": "whole numbers", "f": "numbers"}


class TensorRows(Sequence[TensorRow]):
    """The rows of a request, each a view of its arrays."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._arrays = arrays

    def __len__(self) -> int:
        return len(self._arrays[0])

    def __getitem__(self, index: Any) -> Any:
        return tuple(array[index] for array in self._arrays)


def decode_request(body: bytes, content_type: str, signature: Signature) -> InferenceRequest:
    """Return the request in a body. Raises RequestFault with the sentence for the client."""
    document, tail = read_envelope(body, content_type)
    tensors = _tensors(document["inputs"], signature)
    pieces = claimed_pieces(document["inputs"], tail)
    arrays = [
        _input_array(tensors[record.name], pieces.get(record.name), record)
        for record in signature.inputs
    ]
    if len(set(map(len, arrays))) != 1:
        counts = ", ".join(
            f"{record.name!r} {len(array)}"
            for record, array in zip(signature.inputs, arrays, strict=True)
        )
        raise RequestFault(f"The inputs have different numbers of rows: {counts}.")
    return kserve_request(document, TensorRows(arrays), [item.name for item in signature.outputs])


def encode_response(
    arrays: Sequence[Array], request: InferenceRequest, signature: Signature
) -> tuple[bytes, str]:
    """Return body and content type; `arrays` are all outputs, rows on axis 0, contiguous."""
    records = signature.outputs
    outputs = [
        (records[index].name, records[index].datatype, arrays[index], is_binary)
        for index, is_binary in request.wanted
    ]
    return encode_outputs(signature, request.id, outputs)


def _tensors(inputs: object, signature: Signature) -> dict[str, Mapping[str, Any]]:
    """Return the client's tensors by name: exactly the model's inputs."""
    if not isinstance(inputs, list) or not all(isinstance(tensor, dict) for tensor in inputs):
        raise RequestFault(
            '"inputs" must be a list of tensors, each with "name", "shape", "datatype" and "data".'
        )
    names = [record.name for record in signature.inputs]
    takes = ", ".join(map(repr, names))
    for tensor in inputs:
        if tensor.get("name") not in names:
            raise RequestFault(
                f"Unknown input {excerpt(tensor.get('name'))}; the model takes {takes}."
            )
    tensors = {tensor["name"]: tensor for tensor in inputs}
    if len(tensors) != len(names) or len(inputs) != len(names):
        raise RequestFault(
            f"The request has {len(inputs)} inputs; the model takes each of these once: {takes}."
        )
    return tensors


def _input_array(tensor: Mapping[str, Any], piece: bytes | None, record: TensorRecord) -> Array:
    """Return one input in the shape that the request gives and the model takes."""
    if tensor.get("datatype") != record.datatype:
        raise RequestFault(
            f"Input {record.name!r} has datatype {excerpt(tensor.get('datatype'))}; it must be "
            f"{record.datatype!r}."
        )
    shape = tensor.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) != len(record.shape)
        or not all(type(size) is int and size >= 0 for size in shape)
        or any(wanted not in (-1, size) for wanted, size in zip(record.shape, shape, strict=True))
    ):
        raise RequestFault(
            f"Input {record.name!r} has shape {excerpt(shape)}; it must be {list(record.shape)}, "
            "-1 being any size."
        )
    values = (
        _json_values(tensor.get("data"), record) if piece is None else _binary_values(piece, record)
    )
    refuse_beyond_table(values, record.name, record.table_rows)
    if values.size != math.prod(shape):
        raise RequestFault(f"Input {record.name!r} has shape {shape} but {values.size} values.")
    try:
        return values.reshape(shape)
    except ValueError as fault:  # the product is 0, but numpy has no arrays of 2**62 x 0
        raise RequestFault(
            f"Input {record.name!r} has shape {shape}, larger than any array."
        ) from fault


def _binary_values(piece: bytes, record: TensorRecord) -> Array:
    dtype = DATATYPES[record.datatype]
    if len(piece) % dtype.itemsize:
        raise RequestFault(
            f"Input {record.name!r} has {len(piece)} bytes, no whole number of {record.datatype} "
            "values."
        )
    values: Array = np.frombuffer(piece, dtype)
    return values


def _json_values(data: object, record: TensorRecord) -> Array:
    """Return flat or nested data; refuse numbers that the datatype cannot hold."""
    if not isinstance(data, list):
        raise RequestFault(f'Input {record.name!r} needs "data" with a list of values.')
    kinds = set(map(type, data))
    while kinds == {list}:
        if len(set(map(len, data))) > 1:
            raise RequestFault(f"Input {record.name!r} has data whose lists differ in length.")
        data = list(chain.from_iterable(data))
        kinds = set(map(type, data))
    kind = DATATYPES[record.datatype].kind
    if not kinds <= TAKES[kind]:
        raise RequestFault(
            f"Input {record.name!r} is {record.datatype}, so its data must be {NOUNS[kind]}."
        )
    return array_of(data, record.name, record.datatype)


def array_of(numbers: Sequence[float], name: str, datatype: str) -> Array:
    """Return an input's numbers as an array of a datatype. Raises RequestFault where it cannot."""
    dtype = DATATYPES[datatype]
    try:
        with np.errstate(over="raise"):
            values: Array = np.array(numbers, np.float64 if dtype.kind == "f" else dtype)
            return values.astype(dtype, copy=False)
    except (FloatingPointError, OverflowError) as fault:
        raise RequestFault(f"Input {name!r} holds a number that {datatype} cannot.") from fault


def refuse_beyond_table(values: Array, name: str, rows: int | None) -> None:
    """Refuse a value that is in no row of the table in which the network looks it up.

    A GPU would read another memory than the table's. Raises RequestFault.
    """
    if rows is None or not values.size:
        return
    low, high = int(values.min()), int(values.max())
    if low < -rows or high >= rows:
        raise RequestFault(
            f"Input {name!r} holds {high if high >= rows else low}, and the network looks its "
            f"values up in a table of {rows} rows; they must be from {-rows} to {rows - 1}."
        )


def zeros(records: Sequence[TensorRecord], batch: int, sequence: int | None) -> list[Array]:
    """Return a batch of zeros per input.

    A dynamic second axis has the sequence's size, any other one element.
    """
    arrays: list[Array] = []
    for record in records:
        unknown = (1 if sequence is None else sequence, *(1 for _ in record.shape[2:]))
        sizes = zip(record.shape[1:], unknown, strict=False)
        shape = [default if size == -1 else size for size, default in sizes]
        arrays.append(np.zeros((batch, *shape), DATATYPES[record.datatype]))
    return arrays


def shortest_sequence(profiles: Sequence[ProfileRecord]) -> int | None:
    """Return the fewest tokens of a row that a profile takes; `None` where none has a sequence."""
    return min(
        (profile.sequence[0] for profile in profiles if profile.sequence is not None), default=None
    )
