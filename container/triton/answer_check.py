"""Checks what a user's code answers against the tensors that its manifest declares.

Archives carry this file beside `processing.py` and each `model.py` that runs a user's code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class WrongAnswer(Exception):
    """The user's code returned other tensors; the message is a sentence without their values."""


def checked_answer(
    answer: Mapping[str, Array], records: Sequence[Mapping[str, Any]], rows: int, function: str
) -> dict[str, Array]:
    """Return the answer's tensors in the order of `records`, whose first axis is the request's.

    Raises WrongAnswer for another name, datatype, shape or number of rows.
    """
    names = [record["name"] for record in records]
    if sorted(answer) != sorted(names):
        raise WrongAnswer(
            f"{function}() returned {', '.join(sorted(answer)) or 'nothing'}; it must return "
            f"{', '.join(names)}"
        )
    for record in records:
        name, array = record["name"], answer[record["name"]]
        shape, wanted = list(array.shape), [rows, *record["shape"][1:]]
        if datatype_of(array) != record["datatype"]:
            raise WrongAnswer(
                f"{function}() returned {name} as {datatype_of(array)}; it must be "
                f"{record['datatype']}"
            )
        if len(shape) != len(wanted) or any(
            size not in (-1, length) for length, size in zip(shape, wanted, strict=True)
        ):
            raise WrongAnswer(
                f"{function}() returned {name} of shape {shape}; it must be {wanted}, a row for "
                "each row of the request"
            )
    return {name: answer[name] for name in names}


def datatype_of(array: Array) -> str:
    """Return the KServe v2 name of an array's type; its numpy name where there is none."""
    if array.dtype == object:
        return "BYTES"
    kind = {"b": "BOOL", "i": "INT", "u": "UINT", "f": "FP"}.get(array.dtype.kind)
    if kind is None or kind == "BOOL":
        return kind or str(array.dtype)
    return f"{kind}{8 * array.dtype.itemsize}"
