"""ONNX networks in ONNX Runtime on the CPU.

One session, run by as many threads at once as there are slots. Two slots of one thread each did 574
to 589 rows/s of MiniLM at 32 x 16 on two cores, one slot of two threads 465 to 545.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from container.server.codecs.tensors import TensorRow, zeros
from container.server.engines.engine import Costs, LinearCosts, Size, memory_of
from container.server.engines.tokens import Tokens, pad_rows
from container.server.process import trim_memory
from container.server.types import Array, Arrays
from onboarding.manifest import TensorRecord

Feed = dict[str, Array]
Run = Callable[[], Any]
TIMED_TOKENS, TIMED_RUNS = 16, 3


class CpuEngine:
    """A session, its slots and its warm-up; subclasses know what rows are.

    `_outputs` are the names of the outputs that are computed, `_timed` the two sizes that warm-up
    times, by their cells: tokens, or rows without tokens.
    """

    sequence_buckets: tuple[int, ...] | None = None
    _outputs: list[str]
    _timed: Mapping[int, Size]

    def __init__(
        self,
        path: Path,
        *,
        slots: int,
        threads: int,
        max_rows: int,
        sizes: Iterable[Size] = (),
        clock: Callable[[], float] = time.perf_counter,
        load: Callable[[Path, int], Any] | None = None,
    ) -> None:
        """`threads` are one slot's; `sizes` are run at warm-up, which `clock` times in seconds.

        `load` opens the session; default: of ONNX Runtime. Raises EngineOutOfMemory, and what the
        library raises.
        """
        self.slots, self.max_rows = slots, max_rows
        # A run on the event loop would block other slots.
        self.inline_rows = max_rows if slots == 1 else 0
        self._session: Any = (open_session if load is None else load)(path, threads)
        self._sizes, self._clock = tuple(sizes), clock

    def warm_up(self) -> Costs:
        return warm_up_session(
            self._runner, self._sizes, timed=self._timed, slots=self.slots, clock=self._clock
        )

    def warm_up_inline(self) -> None: ...

    def close(self) -> None:
        del self._session

    def _run(self, feed: Feed) -> list[Array]:
        with memory_of("A batch"):
            answers: list[Array] = self._session.run(self._outputs, feed)
        return answers

    def _runner(self, size: Size) -> Run:
        feed = self._blank(*size)
        return lambda: self._session.run(self._outputs, feed, shrinking_run())

    def _blank(self, rows: int, tokens: int | None) -> Feed:
        raise NotImplementedError


class TokenEngine(CpuEngine):
    """A network of tokens; answers its first output as float32. Warm-up runs unmasked tokens 0."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self._types = {
            tensor.name: np.int32 if tensor.type == "tensor(int32)" else np.int64
            for tensor in self._session.get_inputs()
        }
        self._outputs = [self._session.get_outputs()[0].name]
        self._timed = {rows * TIMED_TOKENS: (rows, TIMED_TOKENS) for rows in (1, 8)}

    def prepare(self, rows: Sequence[Tokens]) -> Feed:
        """Return the rows, padded to the longest of them."""
        feed = pad_rows(rows, shape=(len(rows), max(1, *map(len, rows)) if rows else 1))
        return {name: feed[name].astype(dtype, copy=False) for name, dtype in self._types.items()}

    def run(self, prepared: Feed, slot: int) -> Arrays:
        """Return one array, float32 [rows, ...]."""
        return (np.ascontiguousarray(self._run(prepared)[0], dtype=np.float32),)

    def _blank(self, rows: int, tokens: int | None) -> Feed:
        return self.prepare([Tokens(np.zeros(1 if tokens is None else tokens, np.int32))] * rows)


class TensorEngine(CpuEngine):
    """A network of tensors; answers every output.

    Warm-up runs zeros; an axis of unknown size has one element.
    """

    def __init__(
        self,
        path: Path,
        *,
        inputs: Sequence[TensorRecord],
        outputs: Sequence[TensorRecord],
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        self._records = tuple(inputs)
        self._ranks = {tensor.name: len(tensor.shape) for tensor in self._session.get_inputs()}
        self._outputs = [record.name for record in outputs]
        self._answer_ranks = [len(record.shape) for record in outputs]
        tokens = self._sizes[0][1] if self._sizes else None
        self._timed = {rows: (rows, tokens) for rows in (1, 4)}

    def prepare(self, rows: Sequence[TensorRow]) -> Feed:
        """Return rows of one shape, stacked."""
        return self._feed([np.stack(column) for column in zip(*rows, strict=True)])

    def run(self, prepared: Feed, slot: int) -> Arrays:
        """Return one array per output."""
        ranked = zip(self._run(prepared), self._answer_ranks, strict=True)
        return tuple(
            answer[:, None] if 0 < answer.ndim < rank else answer for answer, rank in ranked
        )

    def _blank(self, rows: int, tokens: int | None) -> Feed:
        return self._feed(zeros(self._records, rows, tokens))

    def _feed(self, arrays: Sequence[Array]) -> Feed:
        """Name the arrays; an input of one value a row, [rows, 1] to clients, is [rows]."""
        return {
            record.name: array.reshape(-1) if self._ranks[record.name] == 1 else array
            for record, array in zip(self._records, arrays, strict=True)
        }


def open_session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """Load a network on the CPU. Raises EngineOutOfMemory."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # A plan of memory for every shape: before texts of all lengths MiniLM takes 15 MB more for it,
    # and runs no faster.
    options.enable_mem_pattern = False
    options.log_severity_level = 4
    with memory_of(path.name):
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    trim_memory()
    return session


def shrinking_run() -> onnxruntime.RunOptions:
    """Return run options that free what one batch size needed: for MiniLM at 32 x 128, 260 MB."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def warm_up_session(
    runner: Callable[[Size], Run],
    sizes: Sequence[Size],
    *,
    timed: Mapping[int, Size],
    slots: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Costs:
    """Run the sizes of `spread_sizes`, then fit a fixed cost and a cost per cell to two small ones.

    `timed` has those two by their cells: tokens, or rows without tokens. Large sizes are not timed:
    from a few hundred tokens on a CPU's cost per token is flat (MiniLM on two cores: 340
    microseconds a token at 1 x 16, 230 at 8 x 16, 222 at 32 x 16, 243 at 8 x 128). Raises
    EngineOutOfMemory.
    """
    if not sizes:
        return LinearCosts()

    def warm(size: Size) -> None:
        with memory_of(f"A batch of rows and tokens {size}"):
            runner(size)()

    with ThreadPoolExecutor(slots, "warm up") as threads:
        list(threads.map(warm, spread_sizes(sizes, slots)))
    (few, first), (many, second) = sorted(
        (cells, _best_seconds(runner(size), clock)) for cells, size in timed.items()
    )
    trim_memory()
    slope = (second - first) / (many - few)
    if slope <= 0:
        return LinearCosts()
    return LinearCosts(fixed_seconds=max(0.0, first - slope * few), seconds_per_token=slope)


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


def _best_seconds(run: Run, clock: Callable[[], float]) -> float:
    """Return the shortest of some runs: disturbances only lengthen them."""
    seconds = []
    for _ in range(TIMED_RUNS):
        begin = clock()
        run()
        seconds.append(clock() - begin)
    return min(seconds)


def _cells(size: Size) -> int:
    rows, tokens = size
    return rows * (1 if tokens is None else tokens)
