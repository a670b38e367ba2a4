"""Arrays, JPEG and PNG files as a network's inputs: tasks `tensors` and `image-classification`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from container.triton.images import ImageProcessor as Processor
from container.triton.images import ImageRefused
from engine_build.datasets.dataset import Array, Encoder, Feed, Sample, Shape
from engine_build.errors import InputRefused
from onboarding.example_row import row_shape, row_values
from onboarding.manifest import ImageProcessor, TensorRecord

DATATYPES = {
    "FP32": np.float32,
    "FP16": np.float16,
    "INT64": np.int64,
    "INT32": np.int32,
    "UINT8": np.uint8,
    "BOOL": np.bool_,
}
"""KServe v2 datatypes that TensorRT's parser takes without a cast (FP64 becomes FP32)."""


class TensorEncoder(Encoder):
    """Rows of arrays, each checked against the input it is for."""

    def __init__(self, records: Sequence[TensorRecord]) -> None:
        self._records = tuple(records)

    def feed(self, samples: Sequence[Sample]) -> Feed:
        """Return arrays [samples, ...] in the network's datatypes. Raises InputRefused."""
        return {
            record.name: np.stack([_row(record, sample) for sample in samples])
            for record in self._records
        }

    def shaped(self, samples: Sequence[Sample], shape: Shape) -> Feed:
        """Repeat samples until there are enough rows; cut or repeat a sequence axis to its size."""
        feed = self.feed([samples[index % len(samples)] for index in range(shape.batch)])
        for record in self._records:
            if shape.sequence is not None and _has_sequence(record):
                rows = feed[record.name]
                places = np.arange(shape.sequence) % rows.shape[1]
                feed[record.name] = np.take(rows, places, axis=1)
        return feed

    def sequence(self, sample: Sample) -> int | None:
        """Return a sample's size on the sequence axis; None where no input has one."""
        assert isinstance(sample, Mapping)
        sizes = [sample[record.name].shape[0] for record in self._records if _has_sequence(record)]
        return max(sizes, default=None)


def _row(record: TensorRecord, sample: Sample) -> Array:
    """Return a sample's array in the input's datatype; only floats are rounded to it."""
    assert isinstance(sample, Mapping)
    if record.name not in sample:
        has = ", ".join(sorted(sample)) or "none"
        raise InputRefused(
            f"the dataset has no array for input {record.name!r} of the network; it has: {has}; "
            "add it."
        )
    row = np.asarray(sample[record.name])
    shape = record.shape[1:]
    fits = [size in (-1, actual) for size, actual in zip(shape, row.shape, strict=False)]
    if row.ndim != len(shape) or not all(fits):
        raise InputRefused(
            f"a sample of input {record.name!r} has shape {list(row.shape)}, but the network takes "
            f"{list(shape)} a row (-1: any); save the dataset in that shape."
        )
    if row.dtype.kind not in "fiub":
        raise _other_values(record, f"{row.dtype}")
    if np.isnan(row).any():
        raise _other_values(record, "NaN")
    with np.errstate(all="ignore"):
        typed: Array = row.astype(DATATYPES[record.datatype], copy=False)
    is_float = typed.dtype.kind == "f"
    before, after = (np.isinf(row), np.isinf(typed)) if is_float else (row, typed)
    if not np.array_equal(before, after):
        raise _other_values(record, f"{row.dtype} from {row.min():g} to {row.max():g}")
    return typed


def _other_values(record: TensorRecord, values: str) -> InputRefused:
    return InputRefused(
        f"a sample of input {record.name!r} holds {values}, but the network takes "
        f"{record.datatype}; save values that it can hold."
    )


def _has_sequence(record: TensorRecord) -> bool:
    return len(record.shape) > 1 and record.shape[1] == -1


def record_dtype(record: TensorRecord) -> np.dtype[Any]:
    """Return numpy's type of a KServe datatype of numbers."""
    return np.dtype(record.datatype.lower().replace("fp", "float"))


def bytes_column(items: Sequence[str | bytes]) -> Array:
    """Return texts or files as a BYTES tensor [items, 1]."""
    column: Array = np.empty((len(items), 1), object)
    column[:, 0] = [item if isinstance(item, bytes) else item.encode() for item in items]
    return column


def example_row(value: Any, record: TensorRecord) -> Array:
    """Return the example of a tensor, as a file gives it, as one row."""
    values = row_values(value)
    array: Array = (
        np.array([str(text).encode() for text in values], object)
        if record.datatype == "BYTES"
        else np.array(values, record_dtype(record))
    )
    return array.reshape(1, *row_shape(value))


class ImageEncoder(Encoder):
    """A checkpoint's processor, as servers run it."""

    def __init__(self, description: ImageProcessor) -> None:
        self._processor = Processor(description.model_dump(mode="json"))

    def feed(self, samples: Sequence[Sample]) -> Feed:
        """Return float32 [images, 3, height, width]. Raises InputRefused."""
        rows = []
        for sample in samples:
            assert isinstance(sample, bytes)
            try:
                rows.append(self._processor.row(sample))
            except ImageRefused as fault:
                raise InputRefused(f"an image of the dataset {fault}; correct the dataset.") from (
                    fault
                )
        return {self._processor.name: np.stack(rows)}

    def shaped(self, samples: Sequence[Sample], shape: Shape) -> Feed:
        """Repeat samples until there are enough rows."""
        return self.feed([samples[index % len(samples)] for index in range(shape.batch)])
