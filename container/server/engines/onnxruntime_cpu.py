"""ONNX networks in ONNX Runtime on the CPU.

One session, run by as many threads at once as there are slots. Two slots of one thread each did 574
to 589 rows/s of MiniLM at 32 x 16 on two cores, one slot of two threads 465 to 545.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from container.server.codecs.tensors import TensorRow
from container.server.engines.engine import Costs, EngineOutOfMemory, LinearCosts
from container.server.engines.shaping import zeros
from container.server.engines.tokens import Tokens, pad_rows
from container.server.types import Array, Arrays
from container.tensorrt.faults import mentions_memory_shortage
from onboarding.manifest import RuntimeIdentity, TensorRecord

Feed = dict[str, Array]
Run = Callable[[], Any]
Size = tuple[int, int | None]
"""Rows and tokens of a batch; `None` where rows have no tokens."""
TIMED_TOKENS, TIMED_RUNS = 16, 3


def running_runtime() -> RuntimeIdentity:
    """The runtime of this process, as archives name it."""
    return RuntimeIdentity(name="onnxruntime", version=onnxruntime.__version__)


class TokenEngine:
    """A network of tokens; answers its first output as float32."""

    sequence_buckets: tuple[int, ...] | None = None

    def __init__(
        self, path: Path, *, slots: int, threads: int, max_rows: int, sizes: Iterable[Size] = ()
    ) -> None:
        """`threads` are one slot's; `sizes` are run at warm-up.

        Raises EngineOutOfMemory, and what ONNX Runtime raises.
        """
        self.slots, self.max_rows, self.inline_rows = slots, max_rows, inline_rows(slots, max_rows)
        self._session = session(path, threads)
        self._sizes = tuple(sizes)
        self._types = {
            tensor.name: np.int32 if tensor.type == "tensor(int32)" else np.int64
            for tensor in self._session.get_inputs()
        }
        self._output = self._session.get_outputs()[0].name

    def prepare(self, rows: Sequence[Tokens]) -> Feed:
        """The rows, padded to the longest of them."""
        return self._feed(pad_rows(rows, shape=(len(rows), max(1, *map(len, rows)) if rows else 1)))

    def run(self, prepared: Feed, slot: int) -> Arrays:
        """One array, float32 [rows, ...].

        Raises EngineOutOfMemory, and what ONNX Runtime raises.
        """
        return (
            np.ascontiguousarray(ran(self._session, [self._output], prepared)[0], dtype=np.float32),
        )

    def warm_up(self) -> Costs:
        """Runs unmasked tokens 0."""
        timed = {rows * TIMED_TOKENS: (rows, TIMED_TOKENS) for rows in (1, 8)}
        return warm_up_session(self._runner, self._sizes, timed=timed, slots=self.slots)

    def warm_up_inline(self) -> None: ...

    def close(self) -> None:
        """Forgets the session."""
        del self._session

    def _runner(self, size: Size) -> Run:
        rows, tokens = size
        row = Tokens(np.zeros(1 if tokens is None else tokens, np.int32))
        feed = self.prepare([row] * rows)
        return lambda: self._session.run([self._output], feed, shrinking_run())

    def _feed(self, inputs: Feed) -> Feed:
        return {name: inputs[name].astype(dtype, copy=False) for name, dtype in self._types.items()}


class TensorEngine:
    """A network of tensors; answers every output."""

    sequence_buckets: tuple[int, ...] | None = None

    def __init__(
        self,
        path: Path,
        *,
        slots: int,
        threads: int,
        max_rows: int,
        inputs: Sequence[TensorRecord],
        outputs: Sequence[TensorRecord],
        sizes: Iterable[Size] = (),
    ) -> None:
        """`threads` are one slot's; `sizes` are run at warm-up.

        Raises EngineOutOfMemory, and what ONNX Runtime raises.
        """
        self.slots, self.max_rows, self.inline_rows = slots, max_rows, inline_rows(slots, max_rows)
        self._session = session(path, threads)
        self._sizes = tuple(sizes)
        self._records = tuple(inputs)
        self._ranks = {tensor.name: len(tensor.shape) for tensor in self._session.get_inputs()}
        self._outputs = [record.name for record in outputs]
        self._answer_ranks = [len(record.shape) for record in outputs]

    def prepare(self, rows: Sequence[TensorRow]) -> Feed:
        """Rows of one shape, stacked."""
        return self._feed([np.stack(column) for column in zip(*rows, strict=True)])

    def run(self, prepared: Feed, slot: int) -> Arrays:
        """One array per output.

        Raises RuntimeError when an output's first axis is not the rows', and as TokenEngine does.
        """
        count = len(next(iter(prepared.values())))
        answers = ran(self._session, self._outputs, prepared)
        for name, answer in zip(self._outputs, answers, strict=True):
            if not answer.ndim or len(answer) != count:
                raise RuntimeError(
                    f"output {name!r} has shape {list(answer.shape)} for {count} rows"
                )
        ranked = zip(answers, self._answer_ranks, strict=True)
        return tuple(answer[:, None] if answer.ndim < rank else answer for answer, rank in ranked)

    def warm_up(self) -> Costs:
        """Runs zeros; an axis of unknown size has one place."""
        few = next(iter(self._sizes), (1, None))[1]
        return warm_up_session(
            self._runner,
            self._sizes,
            timed={rows: (rows, few) for rows in (1, 4)},
            slots=self.slots,
        )

    def warm_up_inline(self) -> None: ...

    def close(self) -> None:
        """Forgets the session."""
        del self._session

    def _runner(self, size: Size) -> Run:
        feed = self._feed(zeros(self._records, *size))
        return lambda: self._session.run(self._outputs, feed, shrinking_run())

    def _feed(self, arrays: Sequence[Array]) -> Feed:
        return {
            record.name: self._fit(record.name, array)
            for record, array in zip(self._records, arrays, strict=True)
        }

    def _fit(self, name: str, array: Array) -> Array:
        """One value a row comes as [rows, 1].

        For servers know no tensor of the batch axis alone.
        """
        return array.reshape(-1) if self._ranks[name] == 1 else array


def inline_rows(slots: int, max_rows: int) -> int:
    """Return `max_rows` for one slot, else 0: a run on the event loop would block other slots."""
    return max_rows if slots == 1 else 0


def session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """A network, loaded on the CPU. Raises EngineOutOfMemory."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # A plan of memory for every shape: before texts of all lengths MiniLM takes 15 MB more for it,
    # and runs no faster.
    options.enable_mem_pattern = False
    options.log_severity_level = 4
    try:
        made = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as fault:
        if is_memory_shortage(fault):
            raise EngineOutOfMemory(
                f"{path.name} does not fit the memory that is left: {fault}"
            ) from fault
        raise
    trim_memory()
    return made


def ran(session: onnxruntime.InferenceSession, outputs: Sequence[str], feed: Feed) -> list[Array]:
    """The outputs of a batch. Raises EngineOutOfMemory, and what ONNX Runtime raises."""
    try:
        answers: list[Array] = session.run(outputs, feed)
    except Exception as fault:
        if is_memory_shortage(fault):
            raise EngineOutOfMemory(
                f"A batch does not fit the memory that is left: {fault}"
            ) from fault
        raise
    return answers


def shrinking_run() -> onnxruntime.RunOptions:
    """Return run options that free what one batch size needed: for MiniLM at 32 x 128, 260 MB."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def is_memory_shortage(fault: Exception) -> bool:
    """True when ONNX Runtime failed for lack of memory, on a CPU or a GPU."""
    return isinstance(fault, MemoryError) or mentions_memory_shortage(str(fault))


def warm_up_session(
    runner: Callable[[Size], Run], sizes: Sequence[Size], *, timed: Mapping[int, Size], slots: int
) -> Costs:
    """Run the sizes of `warming`, then fit a fixed cost and a cost per cell to two small sizes.

    `timed` has those two by their cells: tokens, or rows without tokens. Large sizes are not timed:
    from a few hundred tokens on a CPU's cost per token is flat (MiniLM on two cores: 340
    microseconds a token at 1 x 16, 230 at 8 x 16, 222 at 32 x 16, 243 at 8 x 128). Raises
    EngineOutOfMemory.
    """
    if not sizes:
        return LinearCosts()
    with ThreadPoolExecutor(slots, "warm up") as threads:
        for done in [threads.submit(_ran, runner, size) for size in warming(sizes, slots)]:
            done.result()
    (few, first), (many, second) = sorted(
        (cells, _best_seconds(runner(size))) for cells, size in timed.items()
    )
    trim_memory()
    slope = (second - first) / (many - few)
    if slope <= 0:
        return LinearCosts()
    return LinearCosts(fixed_seconds=max(0.0, first - slope * few), seconds_per_token=slope)


def warming(sizes: Sequence[Size], slots: int) -> list[Size]:
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


def trim_memory() -> None:
    """Return freed memory to the machine, where the C library can: 40 MB after MiniLM's warm-up."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _ran(runner: Callable[[Size], Run], size: Size) -> None:
    try:
        runner(size)()
    except Exception as fault:
        if is_memory_shortage(fault):
            raise EngineOutOfMemory(
                f"A batch of rows and tokens {size} does not fit the memory that is left: {fault}"
            ) from fault
        raise


def _best_seconds(run: Run) -> float:
    """Return the shortest of some runs: disturbances only lengthen them."""
    found = []
    for _ in range(TIMED_RUNS):
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return min(found)


def _cells(size: Size) -> int:
    rows, tokens = size
    return rows * (1 if tokens is None else tokens)
