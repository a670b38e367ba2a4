"""Datasets: texts, labelled texts or arrays, one sample a row, and what encodes them."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine_build.errors import InputRefused


class Encoder(Protocol):
    """Makes feeds of samples."""

    inputs: tuple[str, ...]
    """Names of the network's inputs."""

    def feed(self, samples: Sequence[Sample]) -> Feed:
        """One batch."""
        ...

    def feeds(self, samples: Sequence[Sample], batch: int) -> Iterator[Feed]:
        """Batches of samples in order."""
        ...

    def shaped(self, samples: Sequence[Sample], shape: Shape) -> Feed:
        """Real values in exactly that shape, nothing of it padding: for benchmarks."""
        ...

    def length(self, sample: Sample) -> int:
        """What makes a sample dear; 0 where all cost the same."""
        ...


def by_length(encoder: Encoder, samples: Sequence[Sample]) -> list[int]:
    """Places of the samples, the shortest first: batches of them hold little padding."""
    return sorted(range(len(samples)), key=lambda index: encoder.length(samples[index]))


Array = np.ndarray[Any, Any]
Feed = dict[str, Array]
"""By network input name; rows on axis 0."""
ATTENTION_MASK = "attention_mask"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Rows of a batch and, where there is a sequence axis, tokens of a row."""

    batch: int
    sequence: int | None = None

    def __str__(self) -> str:
        return str(self.batch) if self.sequence is None else f"{self.batch} x {self.sequence}"


Sample = str | Mapping[str, Array]
"""A text, or one row of each network input by its name."""
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
    ".txt (a text a line), .tsv (label, tab, text), .npz (an array per network input, rows on "
    "axis 0)"
)


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Some samples of a dataset, and their labels where it has them."""

    values: tuple[Sample, ...] = ()
    labels: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def first(self, count: int) -> Samples:
        """The first ones."""
        return Samples(
            values=self.values[:count], labels=None if self.labels is None else self.labels[:count]
        )

    def identities(self) -> tuple[object, ...]:
        """Something hashable for each sample, equal for equal samples."""
        return tuple(map(identity, self.values))


def identity(sample: Sample) -> object:
    """A text itself; of arrays, their bytes by name."""
    return (
        sample
        if isinstance(sample, str)
        else tuple((name, sample[name].tobytes()) for name in sorted(sample))
    )


def samples(path: Path) -> Samples:
    """The samples of a dataset file. Raises InputRefused."""
    try:
        if path.suffix == ".npz":
            return _arrays(path)
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except DAMAGED as error:
        raise InputRefused(f"dataset {path} cannot be read ({error}); allowed: {KINDS}.") from error
    selected = tuple(line for line in lines if line)
    return _labelled(path, selected) if path.suffix == ".tsv" else Samples(values=selected)


def _labelled(path: Path, lines: Sequence[str]) -> Samples:
    pairs = [line.partition("\t") for line in lines]
    broken = next(
        (number for number, (_, tab, text) in enumerate(pairs, 1) if not (tab and text.strip())),
        None,
    )
    if broken is not None:
        raise InputRefused(
            f"dataset {path}, sample {broken}: {lines[broken - 1]!r} has no label; write label, "
            "tab, text."
        )
    labels, texts = (
        tuple(label.strip() for label, _, _ in pairs),
        tuple(text.strip() for _, _, text in pairs),
    )
    return Samples(values=texts, labels=labels)


def _arrays(path: Path) -> Samples:
    # Opened here: of a damaged file, numpy leaves its own open.
    with path.open("rb") as opened:
        file = np.load(opened, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("it is one array without a name; write np.savez(path, name=array)")
        arrays = {name: file[name] for name in file.files}
    labels = arrays.pop(LABELS, None)
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if labels is not None:
        counts[LABELS] = len(labels)
    if not arrays or len(set(counts.values())) != 1:
        listing = ", ".join(f"{name} {count}" for name, count in counts.items()) or "nothing"
        raise InputRefused(
            f"dataset {path} holds {listing} rows; every array must have one row per sample."
        )
    rows = tuple(
        {name: array[index] for name, array in arrays.items()}
        for index in range(next(iter(counts.values())))
    )
    return Samples(
        values=rows, labels=None if labels is None else tuple(str(label) for label in labels)
    )
