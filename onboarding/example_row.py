"""One row of a tensor as a file writes it: a value, or lists in lists, by KServe v2 datatype."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

FORMATS = {
    "BOOL": "?", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B",
    "UINT16": "H", "UINT32": "I", "UINT64": "Q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
"""struct's letter of each datatype; BYTES has a length before each text."""
LARGEST_VALUES = 4096


def row_shape(value: Any) -> tuple[int, ...]:
    """Return the sizes of a row; one value alone is (1,). Raises ValueError for uneven lists."""
    return _shape(value) or (1,)


def row_values(value: Any) -> list[Any]:
    """Return the values of a row, in the order of C."""
    if not isinstance(value, list):
        return [value]
    return [inner for item in value for inner in row_values(item)]


def row_bytes(value: Any, datatype: str) -> bytes:
    """Return a row as KServe v2's binary extension has it. Raises ValueError."""
    values = row_values(value)
    kinds: tuple[type, ...] = (int, float) if datatype.startswith("FP") else (int,)
    expected = {"BYTES": (str,), "BOOL": (bool,)}.get(datatype, kinds)
    for item in values:
        if not isinstance(item, expected) or (isinstance(item, bool) and bool not in expected):
            raise ValueError(f"{item!r:.40} is no {datatype}")
    try:
        return b"".join(_encoded(item, datatype) for item in values)
    except (struct.error, OverflowError, UnicodeEncodeError) as fault:
        raise ValueError(f"a value that {datatype} cannot hold: {fault}") from fault


def row_problem(value: Any, datatype: str, dims: Sequence[int]) -> str | None:
    """Return why a value is no row of a tensor; None where it is one. -1 is any size."""
    try:
        shape = row_shape(value)
        if len(shape) != len(dims) or any(
            size not in (-1, given) for size, given in zip(dims, shape, strict=True)
        ):
            return f"it has shape {list(shape)}, and dims are {list(dims)}"
        if len(row_values(value)) > LARGEST_VALUES:
            return f"it has more than {LARGEST_VALUES} values"
        row_bytes(value, datatype)
    except ValueError as fault:
        return f"it holds {fault}"
    return None


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    shapes = {_shape(item) for item in value}
    if len(shapes) != 1:
        raise ValueError("lists of different lengths, or an empty one")
    return (len(value), *shapes.pop())


def _encoded(item: Any, datatype: str) -> bytes:
    if datatype != "BYTES":
        number: bytes = struct.pack(f"<{FORMATS[datatype]}", item)
        return number
    text: bytes = item.encode()
    return struct.pack("<I", len(text)) + text
