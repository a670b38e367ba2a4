"""Engines of the CPU: rows are padded to the longest of their batch, and nothing is recorded.

One session, run by as many threads at once as there are slots. Two slots of one thread each did 574
to 589 rows/s of MiniLM at 32 x 16 on two cores, one slot of two threads 465 to 545.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnxruntime

from container.server.engines.buckets import Bucket
from container.server.engines.engine import Costs, LinearCosts, Size, memory_of
from container.server.engines.onnxruntime_cuda import input_tensors
from container.server.engines.pytorch import ProgramRunner
from container.server.engines.shaping import (
    BucketEngine,
    Part,
    Shaping,
    TokenShaping,
)
from container.server.process import trim_memory
from container.server.types import Array

TIMED_TOKENS, TIMED_RUNS = 16, 3


class SessionRunner:
    """A network in ONNX Runtime on the CPU. Runs may come from several threads at once."""

    def __init__(
        self, path: Path, *, slots: int, threads: int, outputs: Sequence[str] | None
    ) -> None:
        """`threads` are one run's; `outputs` are computed, None: the first.

        Raises EngineOutOfMemory, ValueError, and what ONNX Runtime raises.
        """
        self.slots = slots
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # A plan of memory for every shape: before texts of all lengths MiniLM takes 15 MB more for
        # it, and runs no faster.
        options.enable_mem_pattern = False
        # Else sums of INT8 products saturate on x86 without VNNI.
        options.add_session_config_entry("session.x64quantprecision", "1")
        options.log_severity_level = 4
        with memory_of(path.name):
            self._session: Any = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        trim_memory()
        self.inputs = input_tensors(self._session)
        first = self._session.get_outputs()[0].name
        self.outputs = (first,) if outputs is None else tuple(outputs)
        self._shrinking = onnxruntime.RunOptions()
        self._shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    def run(self, part: Part, slot: int) -> Mapping[str, Array]:
        """Return the outputs. Raises EngineOutOfMemory, and what ONNX Runtime raises."""
        with memory_of("A batch"):
            answers = self._session.run(self.outputs, part.feed)
        return dict(zip(self.outputs, answers, strict=True))

    def run_once(self, part: Part) -> None:
        """Run, and free what this batch size needed: for MiniLM at 32 x 128, 260 MB."""
        self._session.run(self.outputs, part.feed, self._shrinking)


CpuRunner = SessionRunner | ProgramRunner


class CpuEngine(BucketEngine):
    """A runner on the CPU, and the shaping of what it runs, which has no buckets."""

    def __init__(
        self,
        runner: CpuRunner,
        shaping: Shaping,
        *,
        max_rows: int,
        sizes: Sequence[Size],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`sizes` are run at warm-up, which `clock` times in seconds."""
        self._cpu_runner, self._sizes, self._clock = runner, tuple(sizes), clock
        self._runner, self._shaping = runner, shaping
        self.slots, self.max_rows, self.sequence_buckets = runner.slots, max_rows, None
        # A run on the event loop would block other slots.
        self.inline_rows = max_rows if runner.slots == 1 else 0

    def warm_up(self) -> Costs:
        """Run the sizes of `spread_sizes`, then fit a fixed cost and one per cell to two of them.

        Cells are tokens, or rows without tokens. Large sizes are not timed: from a few hundred
        tokens on a CPU's cost per token is flat (MiniLM on two cores: 340 microseconds a token at
        1 x 16, 230 at 8 x 16, 222 at 32 x 16, 243 at 8 x 128). Raises EngineOutOfMemory.
        """
        if not self._sizes:
            return LinearCosts()
        if isinstance(self._shaping, TokenShaping):
            timed: dict[int, Size] = {rows * TIMED_TOKENS: (rows, TIMED_TOKENS) for rows in (1, 8)}
        else:
            timed = {rows: (rows, self._sizes[0][1]) for rows in (1, 4)}
        with ThreadPoolExecutor(self.slots, "warm up") as threads:
            list(threads.map(self._run_size, spread_sizes(self._sizes, self.slots)))
        (few, first), (many, second) = sorted(
            (cells, self._best_seconds(size)) for cells, size in timed.items()
        )
        trim_memory()
        slope = (second - first) / (many - few)
        if slope <= 0:
            return LinearCosts()
        return LinearCosts(fixed_seconds=max(0.0, first - slope * few), seconds_per_token=slope)

    def warm_up_inline(self) -> None:
        """Do nothing: nothing belongs to a thread."""

    def _run_size(self, size: Size) -> None:
        with memory_of(f"A batch of rows and tokens {size}"):
            self._cpu_runner.run_once(self._part(size))

    def _best_seconds(self, size: Size) -> float:
        """Return the shortest of some runs: disturbances only lengthen them."""
        part, seconds = self._part(size), []
        for _ in range(TIMED_RUNS):
            begin = self._clock()
            self._cpu_runner.run_once(part)
            seconds.append(self._clock() - begin)
        return min(seconds)

    def _part(self, size: Size) -> Part:
        rows, tokens = size
        return self._shaping.blank(Bucket(rows=rows, tokens=tokens))


def spread_sizes(sizes: Sequence[Size], slots: int) -> list[Size]:
    """Return the sizes that warm-up runs, `slots` at once, the largest first.

    Each size has its rows spread over the slots, as the batcher spreads them, so they need the
    memory of one batch. Each row count also runs in one piece, at the shortest length: a network
    may take fewer rows than it declares.
    """
    shortest = min(sizes, key=_cells)[1]
    whole = {(rows, shortest) for rows, _ in sizes if slots > 1}
    parts = [
        (len(range(slot, rows, slots)), tokens)
        for rows, tokens in sizes
        for slot in range(min(slots, rows))
    ]
    return sorted([*whole, *parts], key=_cells, reverse=True)


def _cells(size: Size) -> int:
    rows, tokens = size
    return rows * (1 if tokens is None else tokens)
