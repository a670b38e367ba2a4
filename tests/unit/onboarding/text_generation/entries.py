"""Entries of generation locks, as a build would write them."""

from __future__ import annotations

import hashlib
from typing import Any

from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.checkpoint_lock import (
    CheckpointEntry,
    CheckpointFile,
    GateRecord,
    Interval,
    files_sha256,
)


def interval(value: float) -> Interval:
    return Interval(value=value, low=value * 0.9, high=value * 1.1)


def gate_record(kl: float = 0.04) -> GateRecord:
    return GateRecord(
        dataset="models/data/held-out.txt",
        dataset_sha256="d" * 64,
        tokens=3141,
        samples=32,
        kl_per_token=interval(kl),
        top1=interval(0.9),
        perplexity_ratio=interval(1.01),
    )


def checkpoint_entry(key: str = "0" * 20, scheme: str = "int8", **changes: Any) -> CheckpointEntry:
    files = (
        CheckpointFile(path="config.json", size_bytes=100, sha256="a" * 64),
        CheckpointFile(path="model.safetensors", size_bytes=1000, sha256="b" * 64),
    )
    fields: dict[str, Any] = {
        "checkpoint_key": key,
        "model": "chat",
        "scheme": scheme,
        "kv_cache": "auto",
        "prefix": checkpoint_prefix(key),
        "files": files,
        "files_sha256": files_sha256(files),
        "weight_bytes": 1000,
        "source": "acme/chat@0123456789abcdef0123456789abcdef01234567",
        "source_sha256": "c" * 64,
        "tools": {"llmcompressor": "0.14.0.1"},
        "gate": None if scheme == "bf16" else gate_record(),
        "accepted": True,
        "seconds": 25.5,
        "built_on": "cpu",
    }
    return CheckpointEntry(**{**fields, **changes})


CONTENT = {"config.json": b"{}", "model.safetensors": b"weights", "sub/merges.txt": b"a b"}


def entry_of(key: str, content: dict[str, bytes], **changes: Any) -> CheckpointEntry:
    """Return the entry of these files."""
    files = tuple(
        CheckpointFile(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in content.items()
    )
    return checkpoint_entry(key, files=files, files_sha256=files_sha256(files), **changes)
