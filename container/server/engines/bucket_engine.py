"""The engine of every GPU runtime: batches filled up to buckets, each recorded by a runner."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from container.server.engines.buckets import bucket_costs
from container.server.engines.engine import Costs, LinearCosts
from container.server.engines.shaping import Part, Shaping
from container.server.types import Array, Arrays

TIMED_SECONDS = 0.02
LEAST_RUNS, MOST_RUNS = 3, 10


class Runner(Protocol):
    """Runs parts on a device."""

    slots: int

    def run(self, part: Part, slot: int) -> Mapping[str, Array]:
        """Return the part's own rows of every output, in arrays that no later run changes."""

    def close(self) -> None:
        """Free everything."""


class BucketEngine:
    """A runner, and the shaping of what it runs.

    `warm_up` belongs in slot 0's thread: ONNX Runtime records by thread. The smallest batches may
    also run on the event loop's thread; every size would take the memory of its recording twice.
    """

    def __init__(
        self,
        runner: Runner,
        shaping: Shaping,
        *,
        warm: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Without `warm` nothing runs before the first request, and costs are guessed."""
        self._runner, self._shaping, self._warm, self._clock = runner, shaping, warm, clock
        self.slots = runner.slots
        self.max_rows = shaping.buckets.max_rows
        self.sequence_buckets = shaping.buckets.sequences
        self.inline_rows = min(bucket.rows for bucket in shaping.buckets.sizes) if warm else 0

    def prepare(self, rows: Sequence[Any]) -> tuple[Part, ...]:
        """Return the rows, filled up to their bucket. Raises ValueError if no profile fits."""
        return self._shaping.parts(rows)

    def run(self, prepared: Sequence[Part], slot: int) -> Arrays:
        answers = [self._shaping.answer(self._runner.run(part, slot)) for part in prepared]
        if len(answers) == 1:
            return answers[0]
        return tuple(map(np.concatenate, zip(*answers, strict=True)))

    def warm_up(self) -> Costs:
        """Run every bucket twice in every slot, the second time as recorded, then time slot 0.

        Raises EngineOutOfMemory.
        """
        if not self._warm:
            return LinearCosts()
        # The largest first: memory that is too short is found at once.
        sizes = sorted(self._shaping.buckets.sizes, key=lambda bucket: bucket.cells, reverse=True)
        parts = {bucket: self._shaping.blank(bucket) for bucket in sizes}
        for slot in range(self.slots):
            for part in parts.values():
                for _ in range(2):
                    self._runner.run(part, slot)
        return bucket_costs(
            self._shaping.buckets, {bucket: self._seconds(part) for bucket, part in parts.items()}
        )

    def warm_up_inline(self) -> None:
        """Run the buckets of fewest rows twice: ONNX Runtime records for each thread."""
        for bucket in self._shaping.buckets.sizes:
            if bucket.rows == self.inline_rows:
                part = self._shaping.blank(bucket)
                for _ in range(2):
                    self._runner.run(part, 0)

    def close(self) -> None:
        self._runner.close()

    def _seconds(self, part: Part) -> float:
        """Return the best of some runs: what disturbs a run only ever makes it longer."""
        seconds: list[float] = []
        while len(seconds) < LEAST_RUNS or (
            len(seconds) < MOST_RUNS and sum(seconds) < TIMED_SECONDS
        ):
            begin = self._clock()
            self._runner.run(part, 0)
            seconds.append(self._clock() - begin)
        return min(seconds)
