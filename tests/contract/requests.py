"""Inference requests as bytes, right and wrong, and the status that each server gives a wrong one."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass

BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
JSON_TYPE = "application/json"


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """A request that a server may refuse, and the status of each server; Triton's are those of 2.51."""

    name: str
    body: bytes
    content_type: str = JSON_TYPE
    python: int = 400
    sme: int = 400
    mme: int = 400

    def status(self, kind: str) -> int:
        """The status of one server."""
        return {"python-server": self.python, "triton-sme": self.sme, "triton-mme": self.mme}[kind]


def json_request(texts: Sequence[str], **fields: object) -> bytes:
    """KServe v2 JSON."""
    tensor = {"name": "text", "shape": [len(texts), 1], "datatype": "BYTES", "data": list(texts)}
    return json.dumps({"inputs": [tensor]} | fields).encode()


def binary_request(texts: Sequence[bytes], *, binary_answer: bool = True, size: int | None = None) -> tuple[bytes, str]:
    """The binary extension, asking for a binary answer; `size` lies about the tensor."""
    tail = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    parameters = {"binary_data_size": len(tail) if size is None else size}
    tensor = {"name": "text", "shape": [len(texts), 1], "datatype": "BYTES", "parameters": parameters}
    output = {"name": "embedding", "parameters": {"binary_data": binary_answer}}
    header = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    return header + tail, f"{BINARY_TYPE};json-header-size={len(header)}"


def changed(**changes: object) -> bytes:
    """A JSON request whose tensor has other fields."""
    tensor = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]} | changes
    return json.dumps({"inputs": [tensor]}).encode()


def _wrong_binary(name: str, request: tuple[bytes, str]) -> Wrong:
    return Wrong(name=name, body=request[0], content_type=request[1])


_GOOD_BINARY = binary_request([b"a"])
WRONG = (
    # Triton takes a body without KServe header for one raw text, even an empty one.
    Wrong(name="empty body", body=b"", sme=200, mme=200),
    # Triton's single-model mode answers 500 to what its multi-model mode calls 400: alarms on 5XX see clients' mistakes.
    Wrong(name="not JSON", body=b"{", sme=500),
    Wrong(name="not an object", body=b"[]", sme=500),
    Wrong(name="no inputs", body=b"{}", sme=500),
    Wrong(name="number for a text", body=changed(data=[1]), sme=500),
    Wrong(name="unknown input", body=changed(name="texts")),
    Wrong(name="unknown output", body=json_request(["a"], outputs=[{"name": "logits"}])),
    Wrong(name="wrong datatype", body=changed(datatype="FP32", data=[1.0])),
    Wrong(name="wrong shape", body=changed(shape=[1, 2], data=["a", "b"])),
    Wrong(name="fewer texts than the shape says", body=changed(shape=[2, 1])),
    _wrong_binary("text that is not UTF-8", binary_request([b"\xff\xfe"])),
    _wrong_binary("binary size that lies", binary_request([b"a"], size=4)),
    Wrong(name="header size beyond the body", body=_GOOD_BINARY[0], content_type=f"{BINARY_TYPE};json-header-size=99999"),
    # The Python server splits what is larger than the engine's batch, and reads plain texts.
    Wrong(name="more rows than the batch", body=json_request(["a"] * 33), python=200),
    Wrong(name="plain inputs", body=b'{"inputs": ["a"]}', python=200),
    Wrong(name="shape without the second axis", body=changed(shape=[1]), python=200),
)
