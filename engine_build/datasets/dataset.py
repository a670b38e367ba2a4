"""Datasets: texts, labelled texts, arrays or images, one sample a row, and what encodes them."""

from __future__ import annotations

import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from engine_build.errors import InputRefused
from onboarding.dataset import FOLDER, image_labels, image_names

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]
"""By network input name; rows on axis 0."""
Sample = str | tuple[str, str] | bytes | Mapping[str, Array]
"""A text, a query and a text, an image file, or one row of each network input by its name."""
ATTENTION_MASK = "attention_mask"
LABELS = "labels"
DAMAGED = (
    OSError,
    UnicodeDecodeError,
    ValueError,
    EOFError,
    MemoryError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading a file raises that is cut short, damaged, or of another kind than its name says."""
KINDS = (
    ".txt (a text a line), .tsv (label or query, tab, text), .npz (an array per network input, "
    f"rows on axis 0), {FOLDER}"
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Rows of a batch and, where there is a sequence axis, tokens of a row."""

    batch: int
    sequence: int | None = None

    def __str__(self) -> str:
        return str(self.batch) if self.sequence is None else f"{self.batch} x {self.sequence}"


class Encoder(ABC):
    """Makes feeds of samples."""

    @abstractmethod
    def feed(self, samples: Sequence[Sample]) -> Feed:
        """Return one batch."""

    @abstractmethod
    def shaped(self, samples: Sequence[Sample], shape: Shape) -> Feed:
        """Return real values in exactly that shape, nothing of it padding: for benchmarks."""

    def feeds(self, samples: Sequence[Sample], batch: int) -> Iterator[Feed]:
        """Yield batches of samples in order."""
        for begin in range(0, len(samples), batch):
            yield self.feed(samples[begin : begin + batch])

    def aligned(self, rows: Array, feed: Feed) -> Array:
        """Return a network's rows for a feed in a width that does not depend on the feed."""
        return rows

    def length(self, sample: Sample) -> int:
        """Return what makes a sample expensive; 0 where all cost the same."""
        return 0

    def repetitions(self, samples: Sequence[Sample]) -> tuple[Sample, ...]:
        """Return samples of one word of theirs, repeated; none where samples have no words.

        Attention averages the tokens of a text, so that its results stay far below one token's
        own values, but where all tokens are alike.
        """
        return ()


def by_length(encoder: Encoder, samples: Sequence[Sample]) -> list[int]:
    """Return the samples' indices, the shortest first: batches of them hold little padding."""
    return sorted(range(len(samples)), key=lambda index: encoder.length(samples[index]))


def rows_of_samples(
    answer: Callable[[Feed], Array],
    encoder: Encoder,
    samples: Sequence[Sample],
    batch: int,
    *,
    in_order: bool = False,
) -> Array:
    """Return one row per sample, run in batches of samples of like length: with little padding.

    `in_order`: in batches of the samples as given, for a network whose rows are not independent.
    """
    order = range(len(samples)) if in_order else by_length(encoder, samples)
    rows: Array = np.empty((0, 0), dtype=np.float32)
    for begin in range(0, len(samples), batch):
        places = list(order[begin : begin + batch])
        feed = encoder.feed([samples[place] for place in places])
        part = encoder.aligned(answer(feed), feed)
        if begin == 0:
            rows = np.empty((len(samples), *part.shape[1:]), dtype=part.dtype)
        rows[places] = part
    return rows


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Some samples of a dataset, and their labels where it has them."""

    values: tuple[Sample, ...] = ()
    labels: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    """Of image files; empty for others."""

    def __len__(self) -> int:
        return len(self.values)

    def first(self, count: int) -> Samples:
        """Return the first samples."""
        labels = None if self.labels is None else self.labels[:count]
        return Samples(values=self.values[:count], labels=labels, names=self.names[:count])

    def identities(self) -> tuple[object, ...]:
        """Return something hashable for each sample, equal for equal samples."""
        return tuple(map(identity, self.values))


def identity(sample: Sample) -> object:
    """Return a text, pair or file itself; of arrays, their bytes by name."""
    if isinstance(sample, str | tuple | bytes):
        return sample
    return tuple((name, sample[name].tobytes()) for name in sorted(sample))


def samples(path: Path, *, paired: bool = False) -> Samples:
    """Return the samples of a dataset; `paired`: of a .tsv file of queries and texts.

    Rules of `check` have refused lines without a label and arrays of different lengths before.
    Raises InputRefused for a file that is damaged.
    """
    try:
        if path.is_dir():
            names = image_names(path)
            files = tuple((path / name).read_bytes() for name in names)
            return Samples(values=files, labels=image_labels(names), names=names)
        if path.suffix == ".npz":
            return _arrays(path)
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except DAMAGED as error:
        raise InputRefused(f"dataset {path} cannot be read ({error}); allowed: {KINDS}.") from error
    values = tuple(line for line in lines if line)
    if paired:
        pairs = ([*line.split("\t"), ""][:2] for line in values)
        return Samples(values=tuple((query.strip(), text.strip()) for query, text in pairs))
    return _labelled(values) if path.suffix == ".tsv" else Samples(values=values)


def _labelled(lines: Sequence[str]) -> Samples:
    parts = [line.partition("\t") for line in lines]
    return Samples(
        values=tuple(text.strip() for _, _, text in parts),
        labels=tuple(label.strip() for label, _, _ in parts),
    )


def _arrays(path: Path) -> Samples:
    # Opened here: numpy leaves a damaged file that it opened itself open.
    with path.open("rb") as opened:
        file = np.load(opened, allow_pickle=False)
        arrays = {name: file[name] for name in file.files}
    labels = arrays.pop(LABELS, None)
    names, columns = tuple(arrays), tuple(arrays.values())
    return Samples(
        values=tuple(dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)),
        labels=None if labels is None else tuple(map(str, labels)),
    )


def save_arrays(file: Path | BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write an .npz. numpy.savez takes no array named as an argument of its own, such as `file`."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
