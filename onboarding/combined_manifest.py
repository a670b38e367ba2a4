"""The manifest of an archive that carries one network's engines for several compute capabilities.

The archive's files are told by their digests here, the published manifest of each engine among
them; so the chain holds from the
digest that a deployment pins to every plan and to how each was judged. A reader of one-engine
manifests refuses it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import Field

from onboarding.manifest import ProfileRecord, RuntimeIdentity, TensorRecord
from onboarding.values import Task, Value


class CombinedEngine(Value):
    """One engine of several: the manifest it was published with, whole, and where its file lies
    here.
    """

    engine_key: str
    manifest: str
    engine_file: str


class CombinedManifest(Value):
    """What the engines share, and what each is, by compute capability.

    `files` maps each path (but this one) to its sha256.
    """

    format_version: Literal[2] = 2
    model: str
    task: Task
    platform: str
    runtime: RuntimeIdentity
    compute_capability: str
    """All of them, for people; no server has one of this name."""
    engines: dict[str, CombinedEngine]
    engine_file: None = None
    tokenizer_file: str | None
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    labels: tuple[str, ...] | None
    optimization_profiles: tuple[ProfileRecord, ...]
    max_batch_size: int
    warm_up: bool
    auto_truncate: bool = Field(True, exclude_if=bool)
    """As in the manifest of one engine: only False is written."""
    files: dict[str, str]

    def to_bytes(self) -> bytes:
        """The manifest as UTF-8 JSON, keys sorted: the same manifest gives the same bytes."""
        return (json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True) + "\n").encode()

    def sha256(self) -> str:
        """Hex digest of `to_bytes`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes) -> CombinedManifest:
        """Reads what `to_bytes` wrote. Raises pydantic.ValidationError."""
        return cls.model_validate_json(data)
