"""Rows to arrays and outputs to answers, and the engine of every GPU runtime, which has buckets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from container.server.codecs.tensors import TensorRow, zeros
from container.server.engines.buckets import Bucket, Buckets, bucket_costs
from container.server.engines.engine import Costs, LinearCosts
from container.server.engines.tokens import Tokens, pad_rows
from container.server.types import Array, Arrays
from onboarding.manifest import TensorRecord

TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One run of the engine: its own rows come first, the rest fills the bucket up."""

    rows: int
    shapes: Shapes
    """Of the bucket, by input; none without buckets."""
    feed: Mapping[str, Array | None]
    """By input; `None` is zeros."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An input as the engine has it."""

    dtype: Any
    rank: int


class Shaping(Protocol):
    """Turns rows into runs of the engine, and their outputs into answers."""

    buckets: Buckets | None
    """None: rows are padded to the longest of them."""

    def parts(self, rows: Sequence[Any]) -> tuple[Part, ...]:
        """Return the runs that answer the rows, in order: one, unless no profile takes so many.

        Raises ValueError for sizes that no profile takes.
        """

    def blank(self, bucket: Bucket) -> Part:
        """Return a part of one bucket that every sound engine answers."""

    def answer(self, outputs: Mapping[str, Array]) -> Arrays:
        """Return the outputs of one run as clients get them."""


class TokenShaping:
    """Texts: tokens padded to the bucket and masked; the first output is the answer, as float32.

    A blank part has unmasked tokens 0.
    """

    def __init__(
        self, buckets: Buckets | None, *, inputs: Mapping[str, Tensor], outputs: Sequence[str]
    ) -> None:
        """Raises ValueError for an engine that wants what texts do not give."""
        if "input_ids" not in inputs or not set(inputs) <= set(TEXT_INPUTS):
            raise ValueError(
                f"the engine's inputs are {', '.join(inputs)}; a text model's are "
                f"{', '.join(TEXT_INPUTS)}"
            )
        if buckets is not None and buckets.sequences is None:
            raise ValueError("no optimization profile of the text model has a sequence axis")
        self.buckets = buckets
        self._types = {name: tensor.dtype for name, tensor in inputs.items()}
        self._output = outputs[0]

    def parts(self, rows: Sequence[Tokens]) -> tuple[Part, ...]:
        if self.buckets is None:
            return (self._part(rows, (len(rows), max(1, *map(len, rows)))),)
        parts, begin = [], 0
        for count, bucket in self.buckets.parts(len(rows), max(map(len, rows))):
            assert bucket.tokens is not None
            parts.append(self._part(rows[begin : begin + count], (bucket.rows, bucket.tokens)))
            begin += count
        return tuple(parts)

    def blank(self, bucket: Bucket) -> Part:
        length = 1 if bucket.tokens is None else bucket.tokens
        row = Tokens(np.zeros(length, np.int32))
        return self._part([row] * bucket.rows, (bucket.rows, length))

    def answer(self, outputs: Mapping[str, Array]) -> Arrays:
        return (np.ascontiguousarray(outputs[self._output], np.float32),)

    def _part(self, rows: Sequence[Tokens], shape: tuple[int, int]) -> Part:
        arrays = pad_rows(rows, shape=shape)
        feed: dict[str, Array | None] = {
            name: arrays[name].astype(dtype, copy=False) for name, dtype in self._types.items()
        }
        if self.buckets is None:
            return Part(rows=len(rows), shapes={}, feed=feed)
        if "token_type_ids" in feed and all(row.type_ids is None for row in rows):
            feed["token_type_ids"] = None
        return Part(rows=len(rows), shapes=dict.fromkeys(self._types, shape), feed=feed)


class TensorShaping:
    """Tensors: rows of one shape, stacked and filled up by repeating the last.

    Every output is answered. A blank part has zeros; an axis of unknown size has one element.
    """

    def __init__(
        self,
        buckets: Buckets | None,
        *,
        inputs: Mapping[str, Tensor],
        records: Sequence[TensorRecord],
        outputs: Sequence[TensorRecord],
    ) -> None:
        """`records` and `outputs` are as clients see them.

        Raises ValueError when the engine has other inputs.
        """
        names = [record.name for record in records]
        if set(names) != set(inputs):
            raise ValueError(
                f"the engine's inputs are {', '.join(inputs)}; its manifest says {', '.join(names)}"
            )
        self.buckets = buckets
        self._inputs = dict(inputs)
        self._records = tuple(records)
        self._indexes = {name: names.index(name) for name in inputs}
        self._ranks = [(output.name, len(output.shape)) for output in outputs]
        self._sequence_index = next(
            (index for index, record in enumerate(records) if record.shape[1:2] == (-1,)), None
        )
        """The first input with a sequence axis."""

    def parts(self, rows: Sequence[TensorRow]) -> tuple[Part, ...]:
        if self.buckets is None:
            return (self._part(list(zip(*rows, strict=True)), len(rows), len(rows)),)
        if self.buckets.sequences is None or self._sequence_index is None:
            runs = self.buckets.parts(len(rows), None)
        else:
            runs = self.buckets.exact_parts(len(rows), len(rows[0][self._sequence_index]))
        parts, begin = [], 0
        for count, bucket in runs:
            columns = list(zip(*rows[begin : begin + count], strict=True))
            parts.append(self._part(columns, count, bucket.rows))
            begin += count
        return tuple(parts)

    def blank(self, bucket: Bucket) -> Part:
        columns = [list(array) for array in zeros(self._records, bucket.rows, bucket.tokens)]
        return self._part(columns, bucket.rows, bucket.rows)

    def answer(self, outputs: Mapping[str, Array]) -> Arrays:
        ranked = [(outputs[name], rank) for name, rank in self._ranks]
        return tuple(array[:, None] if 0 < array.ndim < rank else array for array, rank in ranked)

    def _part(self, columns: Sequence[Sequence[Array]], rows: int, filled: int) -> Part:
        feed = {
            name: self._fill(columns[self._indexes[name]], tensor, filled)
            for name, tensor in self._inputs.items()
        }
        shapes = {} if self.buckets is None else {name: feed[name].shape for name in feed}
        return Part(rows=rows, shapes=shapes, feed=feed)

    def _fill(self, column: Sequence[Array], tensor: Tensor, rows: int) -> Array:
        array: Array = np.empty((rows, *column[0].shape), tensor.dtype)
        np.stack(column, out=array[: len(column)], casting="same_kind")
        if len(column) < rows:
            array[len(column) :] = array[len(column) - 1]
        return array.reshape(-1) if tensor.rank == 1 else array


TIMED_SECONDS = 0.02
LEAST_RUNS, MOST_RUNS = 3, 10


class Runner(Protocol):
    """Runs parts on a device."""

    slots: int

    def run(self, part: Part, slot: int) -> Mapping[str, Array]:
        """Return the part's own rows of every output, in arrays that no later run changes."""


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
        assert shaping.buckets is not None
        self._runner, self._shaping, self._clock = runner, shaping, clock
        self._buckets, self._warm = shaping.buckets, warm
        self.slots = runner.slots
        self.max_rows: int = self._buckets.max_rows
        self.sequence_buckets = self._buckets.sequences
        self.inline_rows: int = min(bucket.rows for bucket in self._buckets.sizes) if warm else 0

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
        sizes = sorted(self._buckets.sizes, key=lambda bucket: bucket.cells, reverse=True)
        parts = {bucket: self._shaping.blank(bucket) for bucket in sizes}
        for slot in range(self.slots):
            for part in parts.values():
                for _ in range(2):
                    self._runner.run(part, slot)
        return bucket_costs(
            self._buckets, {bucket: self._seconds(part) for bucket, part in parts.items()}
        )

    def warm_up_inline(self) -> None:
        """Run the buckets of fewest rows twice: ONNX Runtime records for each thread."""
        for bucket in self._buckets.sizes:
            if bucket.rows == self.inline_rows:
                part = self._shaping.blank(bucket)
                for _ in range(2):
                    self._runner.run(part, 0)

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
