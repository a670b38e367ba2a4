"""Signatures of served models."""

from __future__ import annotations

from typing import Any

from container.server.types import Signature
from onboarding.manifest import TensorRecord


def record(name: str, datatype: str, *shape: int) -> TensorRecord:
    """A tensor whose first axis is the rows."""
    return TensorRecord(name=name, datatype=datatype, shape=(-1, *shape))


TEXT = record("text", "BYTES", 1)
EMBEDDING = record("embedding", "FP32", 4)


def text_signature(**fields: Any) -> Signature:
    """An embedder's."""
    return Signature(form="texts", model="tiny", inputs=(TEXT,), outputs=(EMBEDDING,), **fields)


def tensor_signature(inputs: Any, outputs: Any) -> Signature:
    """A network's of arrays."""
    return Signature(form="tensors", model="tiny", inputs=tuple(inputs), outputs=tuple(outputs))
