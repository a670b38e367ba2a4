"""The protocol of every engine, the cost of a batch, and faults of memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from container.server.types import Arrays
from container.tensorrt.faults import mentions_memory_shortage
from onboarding.manifest import ProfileRecord

Size = tuple[int, int | None]
"""Rows and tokens of a batch; `None` where rows have no tokens."""


class Costs(Protocol):
    def seconds(self, rows: int, longest: int) -> float:
        """Return the seconds of a batch of `rows` rows padded to `longest` tokens."""


@dataclass(frozen=True, kw_only=True)
class LinearCosts:
    """A fixed part and a part per token, padding included: engines of any shape on a CPU."""

    fixed_seconds: float = 1.0
    seconds_per_token: float = 1 / 16

    def seconds(self, rows: int, longest: int) -> float:
        return self.fixed_seconds + self.seconds_per_token * rows * longest


@dataclass(frozen=True, kw_only=True)
class BucketCosts:
    """Measured seconds by (rows, tokens) bucket; both axes ascending, every pair present.

    A batch costs what the smallest bucket that takes it does, or else the largest.
    """

    rows: Sequence[int]
    lengths: Sequence[int]
    measured: Mapping[tuple[int, int], float]

    def seconds(self, rows: int, longest: int) -> float:
        return self.measured[_bucket(self.rows, rows), _bucket(self.lengths, longest)]


def _bucket(sizes: Sequence[int], size: int) -> int:
    return sizes[min(bisect_left(sizes, size), len(sizes) - 1)]


class EngineOutOfMemory(Exception):
    """The engine does not fit the memory that is left; the message is the engine's own sentence."""


def is_memory_shortage(fault: BaseException) -> bool:
    """Return True for a lack of memory, or of threads, whichever library says so."""
    is_typed = isinstance(fault, EngineOutOfMemory | MemoryError)
    return is_typed or mentions_memory_shortage(str(fault))


class memory_of:  # noqa: N801  # a generator's would cost a run a microsecond
    """A context that raises EngineOutOfMemory where its body fails for lack of memory."""

    __slots__ = ("_memory", "_subject")

    def __init__(self, subject: str, memory: str = "memory") -> None:
        self._subject, self._memory = subject, memory

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> None:
        if isinstance(fault, Exception) and is_memory_shortage(fault):
            raise EngineOutOfMemory(
                f"{self._subject} does not fit the {self._memory} that is left: {fault}"
            ) from fault


class Engine(Protocol):
    """A loaded engine. A row has a length, which is what it costs."""

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
        """Return the batch of these rows in the shape that runs: padded or stacked.

        Called on the event loop, so it is cheap.
        """

    def run(self, prepared: Any, slot: int) -> Arrays:
        """Return every output of a prepared batch, exactly its rows, in order.

        Called in the slot's thread. Raises whatever fails. Answers are handed on as views: the
        engine never writes into them again.
        """

    def warm_up(self) -> Costs:
        """Run every declared size in every slot, then time it.

        Called in slot 0's thread: ONNX Runtime records by thread.
        """

    def warm_up_inline(self) -> None:
        """Prepare for batches of `inline_rows`; called after `warm_up`, on the event loop.

        Takes no longer than those batches.
        """


def longest_sequence(profiles: Sequence[ProfileRecord]) -> int | None:
    """Return the most tokens of a row; `None` when no profile has a sequence axis."""
    return max(
        (profile.sequence[2] for profile in profiles if profile.sequence is not None), default=None
    )
