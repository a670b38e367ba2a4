"""Arrays as a network's inputs: task `tensors`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from engine_build.datasets.dataset import Array, Feed, Sample, Shape
from engine_build.errors import InputRefused
from onboarding.manifest import TensorRecord

DATATYPES = {
    "FP32": np.float32,
    "FP16": np.float16,
    "INT64": np.int64,
    "INT32": np.int32,
    "UINT8": np.uint8,
    "BOOL": np.bool_,
}
"""KServe v2 datatypes as numpy has them.

Those that TensorRT's parser takes without changing them (FP64 it casts to FP32).
"""


class TensorEncoder:
    """Rows of arrays, each checked against the input it is for."""

    def __init__(self, records: Sequence[TensorRecord]) -> None:
        self._records = tuple(records)
        self.inputs = tuple(record.name for record in records)

    def feed(self, samples: Sequence[Sample]) -> Feed:
        """Arrays of the network's own datatypes [samples, ...], by input name.

        Raises InputRefused.
        """
        return {
            record.name: np.stack([_row(record, sample) for sample in samples])
            for record in self._records
        }

    def feeds(self, samples: Sequence[Sample], batch: int) -> Iterator[Feed]:
        """Batches of samples in order."""
        for begin in range(0, len(samples), batch):
            yield self.feed(samples[begin : begin + batch])

    def shaped(self, samples: Sequence[Sample], shape: Shape) -> Feed:
        """Samples repeated until there are enough rows.

        A dynamic second axis is cut, or repeated, to the sequence.
        """
        feed = self.feed([samples[index % len(samples)] for index in range(shape.batch)])
        return {
            record.name: _sized(record, feed[record.name], shape.sequence)
            for record in self._records
        }

    def length(self, sample: Sample) -> int:
        """Every sample costs the same."""
        return 0

    def sequence(self, sample: Sample) -> int | None:
        """The size of a sample on the sequence axis; None where no input has one."""
        assert not isinstance(sample, str)
        sizes = [sample[record.name].shape[0] for record in self._records if _has_sequence(record)]
        return max(sizes, default=None)


def _row(record: TensorRecord, sample: Sample) -> Array:
    assert not isinstance(sample, str)
    if record.name not in sample:
        has = ", ".join(sorted(sample)) or "none"
        raise InputRefused(
            f"the dataset has no array for input {record.name!r} of the network; it has: {has}; "
            "add it."
        )
    row = np.asarray(sample[record.name])
    wanted = record.shape[1:]
    if row.ndim != len(wanted) or any(
        size not in (-1, found) for size, found in zip(wanted, row.shape, strict=True)
    ):
        raise InputRefused(
            f"a sample of input {record.name!r} has shape {list(row.shape)}, but the network takes "
            f"{list(wanted)} a row (-1: any); save the dataset in that shape."
        )
    return _with_type(record, row)


def _with_type(record: TensorRecord, row: Array) -> Array:
    """The row in the input's datatype: floats rounded to its precision, others unchanged."""
    wanted = np.dtype(DATATYPES[record.datatype])
    if row.dtype.kind not in "fiub":
        raise InputRefused(_unlike(record, f"holds {row.dtype}"))
    if np.isnan(row).any():
        raise InputRefused(_unlike(record, "holds NaN"))
    with np.errstate(all="ignore"):
        typed: Array = row.astype(wanted, copy=False)
    is_kept = (
        np.array_equal(np.isinf(typed), np.isinf(row))
        if wanted.kind == "f"
        else np.array_equal(typed, row)
    )
    if not is_kept:
        raise InputRefused(
            _unlike(record, f"holds {row.dtype} from {row.min():g} to {row.max():g}")
        )
    return typed


def _unlike(record: TensorRecord, fault: str) -> str:
    return (
        f"a sample of input {record.name!r} {fault}, but the network takes {record.datatype}; save "
        "values that it can hold."
    )


def _sized(record: TensorRecord, rows: Array, sequence: int | None) -> Array:
    if sequence is None or not _has_sequence(record):
        return rows
    sized: Array = np.take(rows, np.arange(sequence) % rows.shape[1], axis=1)
    return sized


def _has_sequence(record: TensorRecord) -> bool:
    return len(record.shape) > 1 and record.shape[1] == -1
