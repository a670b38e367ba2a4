"""The protocol of every engine, the cost of a batch, and the sizes that a manifest declares."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from container.server.types import Arrays
from onboarding.manifest import Manifest, ProfileRecord


class Costs(Protocol):
    """Seconds of one batch, after rounding to the engine's buckets."""

    def seconds(self, rows: int, longest: int) -> float:
        """Of `rows` rows padded to `longest` tokens."""
        ...


@dataclass(frozen=True, kw_only=True)
class LinearCosts:
    """A fixed part and a part per token, padding included: engines of any shape on a CPU."""

    fixed_seconds: float = 1.0
    seconds_per_token: float = 1 / 16

    def seconds(self, rows: int, longest: int) -> float:
        """Of `rows` rows padded to `longest` tokens."""
        return self.fixed_seconds + self.seconds_per_token * rows * longest


@dataclass(frozen=True, kw_only=True)
class BucketCosts:
    """Measured seconds by (rows, tokens) bucket; both axes ascending, every pair present."""

    rows: Sequence[int]
    lengths: Sequence[int]
    measured: Mapping[tuple[int, int], float]

    def seconds(self, rows: int, longest: int) -> float:
        """Of the smallest bucket that takes the batch; of the largest, where none does."""
        return self.measured[_bucket(self.rows, rows), _bucket(self.lengths, longest)]


def _bucket(sizes: Sequence[int], size: int) -> int:
    return sizes[min(bisect_left(sizes, size), len(sizes) - 1)]


class Sized(Protocol):
    """A row: anything that has a length, which is what it costs.

    Texts are `Tokens`, tensors tuples of arrays.
    """

    def __len__(self) -> int: ...


class EngineOutOfMemory(Exception):
    """The engine does not fit the memory that is left; the message is the engine's own sentence."""


class Engine(Protocol):
    """A loaded engine."""

    slots: int
    """Batches that may run at once.

    Slot k is only ever used by slot k's own thread, or by the event loop's while that rests.
    """
    inline_rows: int
    """Rows of a batch that may run on the event loop's own thread, once `warm_up_inline` was called
    there; 0: no batch may.
    """
    max_rows: int
    """Rows of the largest batch."""
    sequence_buckets: tuple[int, ...] | None
    """Lengths that rows are padded to, ascending; `None`: to the longest row of the batch."""

    def prepare(self, rows: Sequence[Any]) -> Any:
        """The batch of these rows in the shape that runs: padded or stacked.

        Called on the event loop, so it is cheap.
        """
        ...

    def run(self, prepared: Any, slot: int) -> Arrays:
        """Every output of a prepared batch, exactly its rows, in order.

        Called in the slot's thread. Raises whatever fails. Answers are handed on as views: the
        engine never writes into them again.
        """
        ...

    def warm_up(self) -> Costs:
        """Runs every declared size in every slot, then times it.

        Called in slot 0's thread: ONNX Runtime records by thread.
        """
        ...

    def warm_up_inline(self) -> None:
        """Readies what `inline_rows` allow.

        Called after `warm_up`, on the event loop; runs no longer than those batches.
        """
        ...

    def close(self) -> None:
        """Gives memory back; nothing runs any more."""
        ...


def longest_sequence(profiles: Sequence[ProfileRecord]) -> int | None:
    """Most tokens that a row may have; `None` when no profile has a sequence axis."""
    return max(
        (profile.sequence[2] for profile in profiles if profile.sequence is not None), default=None
    )


def warm_up_sizes(manifest: Manifest) -> tuple[tuple[int, int | None], ...]:
    """(batch, sequence) of every profile's smallest, likeliest and largest sizes, each once.

    None when the spec wants none.
    """
    if not manifest.warm_up:
        return ()
    sizes: dict[tuple[int, int | None], None] = {}
    for profile in manifest.optimization_profiles:
        for place in range(3):
            batch = min(profile.batch[place], manifest.max_batch_size)
            sizes[(batch, None if profile.sequence is None else profile.sequence[place])] = None
    return tuple(sizes)
