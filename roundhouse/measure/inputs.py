"""Request bodies from a file of texts or of arrays by input name, or from a folder of images."""

from __future__ import annotations

import hashlib
import io
import itertools
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onboarding.checkpoint import file_sums
from onboarding.dataset import FOLDER, array_headers, image_names
from roundhouse.errors import RoundhouseError

if TYPE_CHECKING:
    from container.wire import Array

MAX_BODIES = 2048
MAX_BYTES = 64 * 1024 * 1024
LABELS = "labels"
ALLOWED = (
    "allowed: .txt (a text a line), .tsv (label, tab, text), "
    f".npz (arrays by input name, rows on axis 0), {FOLDER}"
)


class Body(NamedTuple):
    """One request's body."""

    data: bytes
    content_type: str


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Request bodies with a description of their file."""

    bodies: tuple[Body, ...]
    rows_per_request: int
    description: str
    sha256: str
    """Of the file."""

    @property
    def mean_bytes(self) -> int:
        """Mean size of a body."""
        return round(sum(len(body.data) for body in self.bodies) / len(self.bodies))

    @property
    def content_type(self) -> str:
        """The media type of the bodies, without parameters."""
        return self.bodies[0].content_type.partition(";")[0]


def read_inputs(
    path: Path, *, rows_per_request: int, as_json: bool = False, paired: bool = False
) -> Inputs:
    """Return the bodies of a file's rows, in its order; rows that fill no request are left out.

    `paired`: a .tsv file's first column is a ranker's query and no label. Arrays and images are in
    the binary extension unless `as_json`; texts are JSON. Raises RoundhouseError.
    """
    if path.is_dir():
        return _images(path, rows_per_request, not as_json)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RoundhouseError(f"--input {path}: {error.strerror}; {ALLOWED}.") from error
    if path.suffix == ".npz":
        bodies, description = _array_bodies(path, data, rows_per_request, not as_json)
    elif path.suffix in (".txt", ".tsv"):
        bodies, description = _text_bodies(path, data, rows_per_request, paired)
    else:
        raise RoundhouseError(f"--input {path}: is no file of texts or arrays; {ALLOWED}.")
    return Inputs(
        bodies=_limited(bodies),
        rows_per_request=rows_per_request,
        description=description,
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _images(folder: Path, count: int, binary: bool) -> Inputs:
    """Return the bodies of a folder's images; its digest is that of a dataset."""
    from container.wire import image_request

    try:
        names = image_names(folder)
        digest = hashlib.sha256(file_sums(folder, names).encode()).hexdigest()
        files = [(folder / name).read_bytes() for name in names]
    except (ValueError, OSError) as error:
        raise RoundhouseError(f"--input {folder}: {error}; {ALLOWED}.") from error
    starts = range(0, len(files) - count + 1, count)
    bodies = [Body(*image_request(files[start : start + count], binary=binary)) for start in starts]
    if not bodies:
        raise RoundhouseError(
            f"--input {folder}: holds {len(files)} images, fewer than the {count} of a request; "
            "add some, or ask for fewer rows a request."
        )
    return Inputs(
        bodies=_limited(bodies),
        rows_per_request=count,
        description=f"{len(files)} images",
        sha256=digest,
    )


def arrays_in(data: bytes, path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz file except its labels. Raises RoundhouseError."""
    import numpy as np

    damaged = f"--input {path}: is a damaged .npz file; write it again with numpy.savez."
    try:
        array_headers(data)
    except ValueError as error:
        raise RoundhouseError(
            f"--input {path}: {error}; write plain arrays with numpy.savez."
        ) from error
    except (EOFError, struct.error, zlib.error) as error:
        raise RoundhouseError(damaged) from error
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return {name: file[name] for name in file.files if name != LABELS}
    except Exception as error:
        # A damaged file makes numpy raise anything, and advise to read it unsafely.
        raise RoundhouseError(damaged) from error


def _text_bodies(path: Path, data: bytes, count: int, paired: bool) -> tuple[list[Body], str]:
    from container.wire import row_pairs_request, text_request

    try:
        lines = [line.strip() for line in data.decode().splitlines()]
    except UnicodeDecodeError as error:
        raise RoundhouseError(
            f"--input {path}: is not UTF-8 ({error.reason} at byte {error.start}); "
            "write it as UTF-8."
        ) from error
    queries = [line.partition("\t")[0] for line in lines if line] if paired else []
    if path.suffix == ".tsv":
        lines = [line.partition("\t")[2] for line in lines]
    texts = [line for line in lines if line]
    if paired and (path.suffix != ".tsv" or len(queries) != len(texts)):
        raise RoundhouseError(
            f"--input {path}: the model ranks texts for a query; give a .tsv file with query, tab, "
            "text on every line."
        )
    starts = _request_starts(path, len(texts), count, "texts")
    texts = texts[: len(starts) * count]
    words = sorted(len(text.split()) for text in texts)
    description = (
        f"{len(texts):,} texts of {path.name}, {words[0]} to {words[-1]} words, "
        f"{words[len(words) // 2]} in the median"
    )
    if paired:
        texts = [text.partition("\t")[0] for text in texts]
        rows = list(zip(queries, texts, strict=False))
        pairs = (row_pairs_request(rows[at : at + count], binary=False) for at in starts)
        return [Body(*pair) for pair in pairs], description
    bodies = [Body(*text_request(texts[at : at + count], binary=False)) for at in starts]
    return bodies, description


def _array_bodies(path: Path, data: bytes, count: int, binary: bool) -> tuple[list[Body], str]:
    from container.wire import array_request

    arrays = arrays_in(data, path)
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        rows = ", ".join(f"{name} {length}" for name, length in lengths.items()) or "none"
        raise RoundhouseError(
            f"--input {path}: needs arrays with the same number of rows on axis 0; it has {rows}."
        )

    def body(start: int) -> Body:
        part = {name: array[start : start + count] for name, array in arrays.items()}
        return Body(*array_request(part, binary=binary))

    try:
        bodies = [body(at) for at in _request_starts(path, max(lengths.values()), count, "rows")]
    except ValueError as error:
        raise RoundhouseError(f"--input {path}: {error}") from error
    shapes = ", ".join(f"{n} {list(array.shape[1:])} {array.dtype}" for n, array in arrays.items())
    return bodies, f"{len(bodies) * count:,} rows of {path.name}: {shapes}"


def _request_starts(path: Path, rows: int, count: int, noun: str) -> range:
    """Return the first row of each request of `count` rows."""
    if rows < count:
        raise RoundhouseError(
            f"--input {path}: holds {rows} {noun}, a request takes {count}; "
            "give more, or ask for fewer."
        )
    return range(0, rows - count + 1, count)


def _limited(bodies: Sequence[Body]) -> tuple[Body, ...]:
    sizes = itertools.accumulate(len(body.data) for body in bodies)
    kept = [body for body, size in zip(bodies, sizes, strict=True) if size <= MAX_BYTES]
    return tuple((kept or bodies[:1])[:MAX_BODIES])
