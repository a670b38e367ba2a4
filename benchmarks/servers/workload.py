"""The requests of a load, real sentences of many lengths in each protocol, and their responses."""

from __future__ import annotations

import json
import math
import operator
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LEAST_COSINE = 0.9999
HEADER_SIZE = "json-header-size="
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

    def wire(self) -> bytes:
        """Return the bytes on the wire."""
        headers = (
            ("Host", "127.0.0.1"),
            ("Content-Type", self.content_type),
            ("Content-Length", len(self.body)),
        )
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers), "", ""]
        return "\r\n".join(lines).encode() + self.body


def shuffled_texts(root: Path) -> list[str]:
    """Return every line of models/data, in an order that is the same in every run."""
    files = (root / "models/data").glob("*.txt")
    lines = {line for path in files for line in path.read_text("utf-8").splitlines()}
    texts = sorted(line for line in lines if line.strip())
    random.Random(SEED).shuffle(texts)
    return texts


def kserve(texts: Sequence[str]) -> Request:
    """Return a request in KServe v2 JSON."""
    tensor = {"name": "text", "shape": [len(texts), 1], "datatype": "BYTES", "data": list(texts)}
    return Request(body=json.dumps({"inputs": [tensor]}, ensure_ascii=False).encode())


def binary(texts: Sequence[str]) -> Request:
    """Return a request in KServe's binary extension that wants a binary response."""
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
    return Request(body=header + tail, content_type=f"{BINARY_TYPE};{HEADER_SIZE}{len(header)}")


def vectors(body: bytes, rows: int) -> list[list[float]]:
    """Return the rows of a response in KServe JSON.

    Raises ValueError when it holds another count.
    """
    values = [float(value) for value in json.loads(body)["outputs"][0]["data"]]
    if not values or len(values) % rows:
        raise ValueError(
            f"a response of {len(values)} numbers cannot be {rows} rows: {body[:200]!r}"
        )
    size = len(values) // rows
    return [values[row * size : (row + 1) * size] for row in range(rows)]


def least_cosine(left: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> float:
    """Return the smallest cosine of the pairs of rows."""
    return min(
        math.fsum(map(operator.mul, a, b)) / (math.hypot(*a) * math.hypot(*b))
        for a, b in zip(left, right, strict=True)
    )
