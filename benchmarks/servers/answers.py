"""Whether a server answers what the model itself answers."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence

LEAST_COSINE = 0.9999
HEADER_SIZE = "json-header-size="


def vectors(body: bytes, content_type: str, rows: int) -> list[list[float]]:
    """The rows of an answer: KServe JSON, its binary extension, or plain lists.

    Raises ValueError when it holds another count.
    """
    values = (
        _binary(body, int(content_type.partition(HEADER_SIZE)[2]))
        if HEADER_SIZE in content_type
        else _json(body)
    )
    if not values or len(values) % rows:
        raise ValueError(
            f"an answer of {len(values)} numbers cannot be {rows} rows: {body[:200]!r}"
        )
    size = len(values) // rows
    return [values[row * size : (row + 1) * size] for row in range(rows)]


def _json(body: bytes) -> list[float]:
    outputs = json.loads(body)["outputs"]
    if isinstance(outputs[0], dict):
        return [float(value) for value in outputs[0]["data"]]
    return [float(value) for row in outputs for value in row]


def _binary(body: bytes, header: int) -> list[float]:
    tail = body[header:]
    return list(struct.unpack(f"<{len(tail) // 4}f", tail))


def least_cosine(found: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> float:
    """The smallest cosine of the pairs."""
    return min(_cosine(left, right) for left, right in zip(found, wanted, strict=True))


def _cosine(left: Sequence[float], right: Sequence[float]) -> float:
    product = math.fsum(a * b for a, b in zip(left, right, strict=True))
    return product / math.sqrt(math.fsum(a * a for a in left) * math.fsum(b * b for b in right))
