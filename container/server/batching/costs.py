"""What a batch costs: how the batcher weighs padding against another run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


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
