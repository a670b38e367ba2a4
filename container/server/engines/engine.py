"""The protocol of every engine: rows are prepared on the event loop, and run in the thread of one
slot, or right there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from container.server.batching.costs import Costs
from container.server.types import Arrays


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
    """Batches that may run at once; slot k is only ever used by slot k's own thread, or by the
    event loop's while that rests.
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
        """Every output of a prepared batch, exactly its rows, in order. Called in the slot's
        thread. Raises whatever fails.

        Answers are handed on as views: the engine never writes into them again.
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
