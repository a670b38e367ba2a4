"""What the load is made of: real sentences of many lengths, as requests in each protocol."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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


JSON_TYPE = "application/json"
BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
SEED = 4


@dataclass(frozen=True, kw_only=True)
class Request:
    """One HTTP request, whole but for its address."""

    body: bytes
    content_type: str = JSON_TYPE
    method: str = "POST"
    path: str = "/invocations"
    headers: tuple[tuple[str, str], ...] = ()

    def wire(self) -> bytes:
        """The bytes on the wire."""
        lines = [
            f"{self.method} {self.path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Content-Type: {self.content_type}",
        ]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return (
            "\r\n".join([*lines, f"Content-Length: {len(self.body)}", "", ""]).encode() + self.body
        )


def shuffled_texts(root: Path) -> list[str]:
    """Every line of models/data, shuffled once and for all: the same order in every run."""
    lines = [
        line
        for path in sorted((root / "models/data").glob("*.txt"))
        for line in path.read_text("utf-8").splitlines()
    ]
    found = sorted({line for line in lines if line.strip()})
    random.Random(SEED).shuffle(found)
    return found


def kserve(texts: Sequence[str]) -> Request:
    """KServe v2 JSON."""
    tensor = {"name": "text", "shape": [len(texts), 1], "datatype": "BYTES", "data": list(texts)}
    return Request(body=json.dumps({"inputs": [tensor]}, ensure_ascii=False).encode())


def plain(texts: Sequence[str]) -> Request:
    """What a server of an afternoon takes."""
    return Request(body=json.dumps({"inputs": list(texts)}, ensure_ascii=False).encode())


def binary(texts: Sequence[str]) -> Request:
    """KServe's binary extension, asking for a binary answer."""
    encoded = [text.encode() for text in texts]
    tail = b"".join(struct.pack("<I", len(text)) + text for text in encoded)
    tensor = {
        "name": "text",
        "shape": [len(texts), 1],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(tail)},
    }
    output = {"name": "embedding", "parameters": {"binary_data": True}}
    header = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    return Request(body=header + tail, content_type=f"{BINARY_TYPE};json-header-size={len(header)}")


def groups(texts: Sequence[str], size: int, count: int) -> list[list[str]]:
    """`count` groups of `size` texts drawn in turn from the mix."""
    return [
        [texts[(group * size + place) % len(texts)] for place in range(size)]
        for group in range(count)
    ]
