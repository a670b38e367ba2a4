"""Inference requests as bytes, right and wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
JSON_TYPE = "application/json"


def json_request(texts: Sequence[str], **fields: object) -> bytes:
    """KServe v2 JSON."""
    tensor = {"name": "text", "shape": [len(texts), 1], "datatype": "BYTES", "data": list(texts)}
    return json.dumps({"inputs": [tensor]} | fields).encode()


def binary_request(
    texts: Sequence[bytes],
    *,
    output: str = "embedding",
    size: int | None = None,
) -> tuple[bytes, str]:
    """The binary extension, for a binary answer; `size` lies about the tensor."""
    tail = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    parameters = {"binary_data_size": len(tail) if size is None else size}
    tensor = {
        "name": "text",
        "shape": [len(texts), 1],
        "datatype": "BYTES",
        "parameters": parameters,
    }
    outputs = [{"name": output, "parameters": {"binary_data": True}}]
    header = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
    return header + tail, f"{BINARY_TYPE};json-header-size={len(header)}"


def lying_request() -> tuple[bytes, str]:
    """The binary extension, whose one text announces more bytes than there are."""
    body, content_type = binary_request([b"abcd"])
    return body[:-8] + struct.pack("<I", 1000) + b"abcd", content_type


def changed_request(**changes: object) -> bytes:
    """A JSON request whose tensor has other fields."""
    tensor = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]} | changes
    return json.dumps({"inputs": [tensor]}).encode()
