"""Rows to the arrays that a GPU engine runs, filled up to a bucket.

Its answers to what clients get.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from container.server.codecs.tensors import DATATYPES, TensorRow
from container.server.engines.buckets import Bucket, Buckets
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
    feed: Mapping[str, Array | None]
    """By input; `None` is zeros."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An input as the engine has it."""

    dtype: Any
    rank: int


class Shaping(Protocol):
    """Turns rows into runs of the engine, and their outputs into answers."""

    buckets: Buckets

    def parts(self, rows: Sequence[Any]) -> tuple[Part, ...]:
        """The runs that answer the rows, in order.

        Raises ValueError for sizes that no profile takes.
        """
        ...

    def warming(self, bucket: Bucket) -> Part:
        """A part of one bucket that every sound engine answers."""
        ...

    def answer(self, outputs: Mapping[str, Array]) -> Arrays:
        """The outputs of one run as clients get them."""
        ...


class TokenShaping:
    """Texts: tokens padded to the bucket and masked; the first output is the answer, as float32."""

    def __init__(
        self, buckets: Buckets, *, inputs: Mapping[str, Tensor], outputs: Sequence[str]
    ) -> None:
        """Raises ValueError for an engine that wants what texts do not give."""
        foreign = sorted(set(inputs) - set(TEXT_INPUTS))
        if foreign or "input_ids" not in inputs:
            raise ValueError(
                f"the engine's inputs are {', '.join(inputs)}; a text model's are "
                f"{', '.join(TEXT_INPUTS)}"
            )
        if buckets.sequences is None:
            raise ValueError("no optimization profile of the text model has a sequence axis")
        self.buckets = buckets
        self._types = {name: tensor.dtype for name, tensor in inputs.items()}
        self._output = outputs[0]

    def parts(self, rows: Sequence[Tokens]) -> tuple[Part, ...]:
        """One part, unless no profile takes so many rows so long."""
        found, begin = [], 0
        for count, bucket in self.buckets.parts(len(rows), max(map(len, rows))):
            found.append(self._part(rows[begin : begin + count], bucket))
            begin += count
        return tuple(found)

    def warming(self, bucket: Bucket) -> Part:
        """Unmasked tokens 0."""
        assert bucket.tokens is not None
        return self._part([Tokens(np.zeros(bucket.tokens, np.int32))] * bucket.rows, bucket)

    def answer(self, outputs: Mapping[str, Array]) -> Arrays:
        """One array, float32 [rows, ...]."""
        return (outputs[self._output].astype(np.float32, copy=False),)

    def _part(self, rows: Sequence[Tokens], bucket: Bucket) -> Part:
        assert bucket.tokens is not None
        shape = (bucket.rows, bucket.tokens)
        arrays: dict[str, Array | None] = {**pad_rows(rows, shape=shape)}
        if all(row.type_ids is None for row in rows):
            arrays["token_type_ids"] = None
        feed = {name: _with_type(arrays[name], dtype) for name, dtype in self._types.items()}
        return Part(rows=len(rows), shapes=dict.fromkeys(self._types, shape), feed=feed)


class TensorShaping:
    """Tensors: rows of one shape, stacked and filled up by repeating the last.

    Every output is answered.
    """

    def __init__(
        self,
        buckets: Buckets,
        *,
        inputs: Mapping[str, Tensor],
        records: Sequence[TensorRecord],
        outputs: Sequence[TensorRecord],
    ) -> None:
        """`records` and `outputs` are as clients see them.

        Raises ValueError when the engine has other inputs.
        """
        if {record.name for record in records} != set(inputs):
            names = ", ".join(record.name for record in records)
            raise ValueError(
                f"the engine's inputs are {', '.join(inputs)}; its manifest says {names}"
            )
        self.buckets = buckets
        self._inputs = dict(inputs)
        self._records = {record.name: record for record in records}
        self._places = {record.name: place for place, record in enumerate(records)}
        self._outputs = tuple(outputs)
        self._long = [
            name
            for name, record in self._records.items()
            if len(record.shape) > 1 and record.shape[1] == -1
        ]
        """Inputs with a sequence axis."""

    def parts(self, rows: Sequence[TensorRow]) -> tuple[Part, ...]:
        """One part, unless no profile takes so many rows."""
        found, begin = [], 0
        for count, bucket in self._sizes(rows):
            columns = {
                name: [row[place] for row in rows[begin : begin + count]]
                for name, place in self._places.items()
            }
            found.append(self._part(columns, count, bucket))
            begin += count
        return tuple(found)

    def warming(self, bucket: Bucket) -> Part:
        """Zeros; an axis of unknown size has one place."""
        arrays = zeros(tuple(self._records.values()), bucket.rows, bucket.tokens)
        return self._part(
            {name: list(array) for name, array in zip(self._records, arrays, strict=True)},
            bucket.rows,
            bucket,
        )

    def answer(self, outputs: Mapping[str, Array]) -> Arrays:
        """One array per output; one value a row comes as [rows, 1]."""
        ranked = ((outputs[record.name], len(record.shape)) for record in self._outputs)
        return tuple(array[:, None] if array.ndim < rank else array for array, rank in ranked)

    def _sizes(self, rows: Sequence[TensorRow]) -> tuple[tuple[int, Bucket], ...]:
        if self.buckets.sequences is None or not self._long:
            return self.buckets.parts(len(rows), None)
        return self.buckets.exact_parts(len(rows), len(rows[0][self._places[self._long[0]]]))

    def _part(self, columns: Mapping[str, Sequence[Array]], rows: int, bucket: Bucket) -> Part:
        feed = {
            name: self._fill(columns[name], tensor, bucket.rows)
            for name, tensor in self._inputs.items()
        }
        return Part(
            rows=rows, shapes={name: array.shape for name, array in feed.items()}, feed=feed
        )

    def _fill(self, column: Sequence[Array], tensor: Tensor, rows: int) -> Array:
        array: Array = np.empty((rows, *column[0].shape), tensor.dtype)
        np.stack(column, out=array[: len(column)], casting="same_kind")
        array[len(column) :] = array[len(column) - 1]
        return array.reshape(-1) if tensor.rank == 1 else array


def zeros(records: Sequence[TensorRecord], batch: int, sequence: int | None) -> list[Array]:
    """A batch of zeros per input.

    A dynamic second axis has the sequence's size, any other one place.
    """
    known = 1 if sequence is None else sequence
    shapes = [
        tuple(
            size if size != -1 else (known if axis == 0 else 1)
            for axis, size in enumerate(record.shape[1:])
        )
        for record in records
    ]
    return [
        np.zeros((batch, *shape), DATATYPES[record.datatype])
        for record, shape in zip(records, shapes, strict=True)
    ]


def _with_type(array: Array | None, dtype: Any) -> Array | None:
    return None if array is None else array.astype(dtype, copy=False)
