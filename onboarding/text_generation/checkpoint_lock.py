"""The lock of a text generator: checkpoints that were built and judged, and their records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import ClassVar

from pydantic import Field, ValidationError

from onboarding.lock import BuiltEntry, ModelLock, record_measurement
from onboarding.signature import SignedStatement, canonical_json
from onboarding.text_generation.checkpoint_key import KvCache
from onboarding.values import Value

RECORD_NAME = "checkpoint.json"
"""A checkpoint as its build wrote it, which is what is signed."""
LATER = {"signature", "knee"}
"""Fields that are known after the build."""


class CheckpointFile(Value):
    """One file of a checkpoint, by its path under the prefix."""

    path: str
    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Interval(Value):
    """A value with the ends of its interval: of 95 % where it is a mean."""

    value: float
    low: float
    high: float


class TaskScore(Value):
    """Score of a task file, with that of the source; `drop` is the source's less this one."""

    file: str
    reference: float
    value: float
    drop: Interval


class KvGate(Value):
    """An FP8 KV cache against a 16-bit one, with the same weights, on long prompts."""

    kl_per_token: Interval
    """Nats."""
    top1: Interval
    perplexity_ratio: Interval


class GateRecord(KvGate):
    """A checkpoint against its source, on held-out text."""

    dataset: str
    dataset_sha256: str
    tokens: int
    samples: int
    task: TaskScore | None = None
    kv: KvGate | None = None


class SpeedRound(Value):
    """Output tokens a second of a checkpoint and of its source, moments apart."""

    output_tokens_per_second: float = Field(gt=0)
    reference_tokens_per_second: float | None = Field(default=None, gt=0)


class SpeedRecord(Value):
    """Output tokens a second of a checkpoint and of its source, at one concurrency."""

    output_tokens_per_second: float = Field(gt=0)
    """The median of the rounds, as that of the source."""
    reference_tokens_per_second: float | None = Field(default=None, gt=0)
    """None: the machine does not run the source, whose weights are larger than its memory."""
    rounds: tuple[SpeedRound, ...] = Field(min_length=1)
    concurrency: int
    instance_type_or_machine: str
    engine: str

    @property
    def ratio(self) -> Interval | None:
        """How many times as fast as its source: the median of the rounds, the least, the most."""
        ratios = [
            item.output_tokens_per_second / item.reference_tokens_per_second
            for item in self.rounds
            if item.reference_tokens_per_second is not None
        ]
        if not ratios:
            return None
        return Interval(value=median(ratios), low=min(ratios), high=max(ratios))

    @property
    def noise(self) -> float:
        """The fastest round through the slowest, of the one whose rounds lie further apart."""
        mine = [item.output_tokens_per_second for item in self.rounds]
        references = [item.reference_tokens_per_second for item in self.rounds]
        known = [item for item in references if item is not None]
        return max(max(rates) / min(rates) for rates in (mine, known) if rates)

    @property
    def is_slower(self) -> bool:
        """Return whether it is slower than its source by more than the noise of the rounds."""
        return self.ratio is not None and self.ratio.value * self.noise < 1


class GenerationKnee(Value):
    """The highest load within the SLO that a load test of the endpoint found, of one copy."""

    concurrency: float = Field(gt=0)
    goodput_requests_per_second: float
    ttft_p95_ms: float
    itl_p95_ms: float
    output_tokens_per_second: float
    instance_type: str
    endpoint: str
    plan_key: str | None = None
    """Digest of what was served (GenerationDeployment.plan_key); None: a knee of before it was
    kept."""
    date: str
    tool: str


class CheckpointEntry(BuiltEntry):
    """One built checkpoint: its files, what it was made from, and how it was judged."""

    noun: ClassVar[str] = "checkpoint"
    measured: ClassVar[str] = "knee"
    digest_noun: ClassVar[str] = "files of"
    subject: ClassVar[str] = RECORD_NAME
    checkpoint_key: str = Field(pattern=r"^[0-9a-f]{20}$")
    model: str
    scheme: str
    kv_cache: KvCache
    prefix: str
    files: tuple[CheckpointFile, ...]
    files_sha256: str
    """Of the sorted `sha256sum` lines of the files."""
    weight_bytes: int
    source: str
    """As the model file pins it."""
    source_sha256: str
    tools: dict[str, str]
    gate: GateRecord | None = None
    """None: weights and KV cache are the source's own."""
    speed: SpeedRecord | None = None
    """None: not measured; the planner's estimate stands."""
    accepted: bool
    reason: str | None = None
    """Why it is not accepted, in one sentence."""
    signature: SignedStatement | None = None
    seconds: float
    built_on: str
    knee: GenerationKnee | None = None

    @property
    def key(self) -> str:
        """The checkpoint key."""
        return self.checkpoint_key

    @property
    def built_model(self) -> str:
        """The name of the text generator."""
        return self.model

    @property
    def digest(self) -> str:
        """The sha256 of the sorted `sha256sum` lines of the files."""
        return self.files_sha256

    @property
    def record(self) -> bytes:
        """What its build wrote: canonical JSON without signature and knee."""
        return canonical_json(self.model_dump(mode="json", exclude=LATER))

    @property
    def signed_sha256(self) -> str:
        """The digest of its record."""
        return hashlib.sha256(self.record).hexdigest()

    @property
    def fault(self) -> str | None:
        """Why its digest is not of its files."""
        if self.files_sha256 != files_sha256(self.files):
            return f"has a digest of {self.checkpoint_key} that its files do not have"
        return None

    @classmethod
    def lock_type(cls) -> type[ModelLock]:
        """Return the kind of lock that holds checkpoints."""
        return GenerationLock


class GenerationLock(ModelLock):
    """Every checkpoint built of one text generator."""

    field: ClassVar[str] = "checkpoints"
    entry_type: ClassVar[type[BuiltEntry]] = CheckpointEntry
    checkpoints: dict[str, CheckpointEntry]


def files_sha256(files: Iterable[CheckpointFile]) -> str:
    """Return the sha256 of what `sha256sum` prints of the files, sorted by path."""
    ordered = sorted(files, key=lambda file: file.path)
    return hashlib.sha256(
        "".join(f"{file.sha256}  {file.path}\n" for file in ordered).encode()
    ).hexdigest()


def record_knee(folder: Path, model: str, key: str, knee: GenerationKnee) -> Path:
    """Record the load that a checkpoint's endpoint holds, replacing an earlier one.

    Raises LockError, and leaves the file as it was, when the lock has no such checkpoint.
    """
    return record_measurement(folder, model, key, GenerationLock, lambda before: knee)


class CheckpointRecordError(ValueError):
    """Why bytes are no record of a checkpoint."""


def read_record(content: bytes) -> CheckpointEntry:
    """Return the entry of a record's bytes. Raises CheckpointRecordError for other bytes."""
    try:
        entry = CheckpointEntry.model_validate_json(json.dumps(json.loads(content)))
    except (ValidationError, ValueError, RecursionError) as error:
        raise CheckpointRecordError(f"{RECORD_NAME} is no record of a checkpoint") from error
    if entry.record != content:
        raise CheckpointRecordError(f"{RECORD_NAME} is no canonical JSON of a build's record")
    if entry.fault is not None:
        raise CheckpointRecordError(f"{RECORD_NAME} has a digest that its files do not have")
    return entry
