"""The requests of the contract suite that an endpoint of AWS is sent, and the status of each.

tests/contract sends them all, and more, to the servers themselves.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onboarding.values import Server

JSON_TYPE = "application/json"
BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
ANSWERED, REFUSED = 200, 400


@dataclass(frozen=True, kw_only=True)
class EndpointExchange:
    """One request, under its name in tests/contract, and the status by server."""

    name: str
    body: bytes
    statuses: Mapping[Server, int]
    content_type: str = JSON_TYPE


def exchanges() -> tuple[EndpointExchange, ...]:
    """Return every exchange; the ones that are refused come last."""
    plain, binary = _tensor(["a dog", "the cat"]), _binary(b"a")
    alike: dict[str, tuple[int, bytes, str]] = {
        "texts in JSON": (ANSWERED, plain, JSON_TYPE),
        "texts in the binary extension": (ANSWERED, *binary),
        "not JSON": (REFUSED, b"{", JSON_TYPE),
        "not an object": (REFUSED, b"[]", JSON_TYPE),
        "no inputs": (REFUSED, b"{}", JSON_TYPE),
        "200,000 brackets": (REFUSED, b"[" * 200_000, JSON_TYPE),
        "number for a text": (REFUSED, _tensor([1]), JSON_TYPE),
        "text/csv": (415, b"a dog", "text/csv"),
        "unknown input": (REFUSED, _tensor(["a"], name="texts"), JSON_TYPE),
        "wrong datatype": (REFUSED, _tensor([1.0], datatype="FP32"), JSON_TYPE),
        "wrong shape": (REFUSED, _tensor(["a", "b"], shape=[1, 2]), JSON_TYPE),
        "text that is not UTF-8": (REFUSED, *_binary(b"\xff\xfe")),
    }
    only_python = EndpointExchange(
        name='`{"inputs": ["a"]}`',
        body=b'{"inputs": ["a"]}',
        statuses={"python": ANSWERED, "triton": REFUSED},
    )
    same = (
        EndpointExchange(
            name=name, body=body, content_type=kind, statuses={"python": status, "triton": status}
        )
        for name, (status, body, kind) in alike.items()
    )
    return only_python, *same


def _tensor(data: Sequence[object], **changes: object) -> bytes:
    tensor = {"name": "text", "shape": [len(data), 1], "datatype": "BYTES", "data": data}
    return json.dumps({"inputs": [tensor | changes]}).encode()


def _binary(text: bytes) -> tuple[bytes, str]:
    tail = struct.pack("<I", len(text)) + text
    tensor = {
        "name": "text",
        "shape": [1, 1],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(tail)},
    }
    header = json.dumps({"inputs": [tensor]}).encode()
    return header + tail, f"{BINARY_TYPE};json-header-size={len(header)}"
