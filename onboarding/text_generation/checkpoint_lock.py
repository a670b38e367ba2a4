"""The lock of a text generator: checkpoints that were built and judged, by checkpoint key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import Field

from onboarding.lock import RESTORE, LockError, change_entry, lock_path, read_lock_file
from onboarding.signature import SignedStatement
from onboarding.text_generation.checkpoint_key import KvCache
from onboarding.values import Value


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


class CheckpointEntry(Value):
    """One built checkpoint: its files, what it was made from, and how it was judged."""

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
    layers_in_16_bits: tuple[int, ...] = ()
    """Decoder layers that keep the source's weights, so that the budget holds."""
    accepted: bool
    reason: str | None = None
    """Why it is not accepted, in one sentence."""
    signature: SignedStatement | None = None
    seconds: float
    built_on: str
    knee: GenerationKnee | None = None


class GenerationLock(Value):
    """Every checkpoint built of one text generator."""

    version: Literal[1] = 1
    model: str
    checkpoints: dict[str, CheckpointEntry]


def files_sha256(files: Iterable[CheckpointFile]) -> str:
    """Return the sha256 of what `sha256sum` prints of the files, sorted by path."""
    ordered = sorted(files, key=lambda file: file.path)
    return hashlib.sha256(
        "".join(f"{file.sha256}  {file.path}\n" for file in ordered).encode()
    ).hexdigest()


def read_generation_lock(folder: Path, model: str) -> GenerationLock:
    """Return the lock of a text generator; empty when there is none.

    Raises LockError when the file is not that model's lock.
    """
    path = lock_path(folder, model)
    lock = read_lock_file(path, GenerationLock)
    if lock is None:
        return GenerationLock(model=model, checkpoints={})
    if lock.model != model:
        raise LockError(path, f"is the lock of '{lock.model}', not of '{model}'", RESTORE)
    for key, entry in lock.checkpoints.items():
        if (key, model) != (entry.checkpoint_key, entry.model):
            raise LockError(path, "lists a checkpoint under the key of another", RESTORE)
        if entry.files_sha256 != files_sha256(entry.files):
            raise LockError(path, f"has a digest of {key} that its files do not have", RESTORE)
    return lock


def is_generation_lock(path: Path) -> bool:
    """Return whether a file is the lock of a text generator."""
    try:
        return read_lock_file(path, GenerationLock) is not None
    except LockError:
        return False


def write_checkpoint_entry(folder: Path, model: str, entry: CheckpointEntry) -> Path:
    """Add or replace one checkpoint, keeping every other, by an atomic rename.

    Writers wait for each other. A knee stays with the same files only. Raises LockError and leaves
    the file as it was.
    """
    path = lock_path(folder, model)
    if entry.model != model:
        raise LockError(
            path,
            f"refuses the checkpoint of another model, '{entry.model}'",
            f"build the checkpoint of {model}",
        )

    def with_entry(before: CheckpointEntry | None) -> CheckpointEntry:
        is_same = before is not None and before.files_sha256 == entry.files_sha256
        if before is None or not is_same or entry.knee is not None:
            return entry
        return entry.model_copy(update={"knee": before.knee})

    return change_entry(
        folder, model, entry.checkpoint_key, read_generation_lock, "checkpoints", with_entry
    )


def record_knee(folder: Path, model: str, key: str, knee: GenerationKnee) -> Path:
    """Record the load that a checkpoint's endpoint holds, replacing an earlier one.

    Raises LockError, and leaves the file as it was, when the lock has no such checkpoint.
    """

    def with_knee(before: CheckpointEntry | None) -> CheckpointEntry:
        if before is None:
            what, way_out = f"has no checkpoint {key}", "build it, then measure it"
            raise LockError(lock_path(folder, model), what, way_out)
        return before.model_copy(update={"knee": knee})

    return change_entry(folder, model, key, read_generation_lock, "checkpoints", with_knee)
