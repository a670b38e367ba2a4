"""What the load is made of: real sentences of many lengths, as requests in each protocol."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

JSON_TYPE = "application/json"
BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
SEED = 4


@dataclass(frozen=True, kw_only=True)
class Asked:
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


def sentences(root: Path) -> list[str]:
    """Every line of models/data, shuffled once and for all: the same order in every run."""
    lines = [
        line
        for path in sorted((root / "models/data").glob("*.txt"))
        for line in path.read_text("utf-8").splitlines()
    ]
    found = sorted({line for line in lines if line.strip()})
    random.Random(SEED).shuffle(found)
    return found


def kserve(texts: Sequence[str]) -> Asked:
    """KServe v2 JSON."""
    tensor = {"name": "text", "shape": [len(texts), 1], "datatype": "BYTES", "data": list(texts)}
    return Asked(body=json.dumps({"inputs": [tensor]}, ensure_ascii=False).encode())


def plain(texts: Sequence[str]) -> Asked:
    """What a server of an afternoon takes."""
    return Asked(body=json.dumps({"inputs": list(texts)}, ensure_ascii=False).encode())


def binary(texts: Sequence[str]) -> Asked:
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
    return Asked(body=header + tail, content_type=f"{BINARY_TYPE};json-header-size={len(header)}")


def groups(texts: Sequence[str], size: int, count: int) -> list[list[str]]:
    """`count` groups of `size` texts drawn in turn from the mix."""
    return [
        [texts[(group * size + place) % len(texts)] for place in range(size)]
        for group in range(count)
    ]
