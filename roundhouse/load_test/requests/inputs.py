"""Request bodies from a file: a text a line, a label and a text a line, or arrays by input name."""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onboarding.arrays import array_headers
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.requests.destination import Body

if TYPE_CHECKING:
    from container.wire import Array

MOST_BODIES = 2048
MOST_BYTES = 64 * 1024 * 1024
LABELS = "labels"
ALLOWED = "allowed: .txt (a text a line), .tsv (label, tab, text), .npz (arrays by input name, rows on axis 0)"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Bodies, and what to say of where they come from."""

    bodies: tuple[Body, ...]
    rows_per_request: int
    rows: str
    """What a row is: texts or rows."""
    told: str
    sha256: str
    """Of the file."""

    @property
    def mean_bytes(self) -> float:
        """Of a body."""
        return sum(len(body.data) for body in self.bodies) / len(self.bodies)


def inputs(path: Path, *, rows_per_request: int, binary: bool | None) -> Inputs:
    """The bodies that a file's rows make, in its order, the last ones that fill no request left
    out.

    `binary` None is JSON for texts and the binary extension for arrays. Raises RoundhouseError.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RoundhouseError(f"--input {path}: {error.strerror}; {ALLOWED}.") from error
    if path.suffix == ".npz":
        bodies, told = _of_arrays(
            path, arrays_in(data, path), rows_per_request, True if binary is None else binary
        )
    elif path.suffix in (".txt", ".tsv"):
        bodies, told = _of_texts(path, _texts(data, path), rows_per_request, binary is True)
    else:
        raise RoundhouseError(f"--input {path}: is no file of texts or arrays; {ALLOWED}.")
    rows = "rows" if path.suffix == ".npz" else "texts"
    return Inputs(
        bodies=_limited(bodies),
        rows_per_request=rows_per_request,
        rows=rows,
        told=told,
        sha256=hashlib.sha256(data).hexdigest(),
    )


def arrays_in(data: bytes, path: Path) -> dict[str, Array]:
    """The arrays of an .npz file but its labels, which belong to no request.

    Raises RoundhouseError.
    """
    import numpy as np

    try:
        array_headers(data)
    except ValueError as error:
        raise RoundhouseError(
            f"--input {path}: {error}; write plain arrays with numpy.savez."
        ) from error
    except (EOFError, struct.error, zlib.error) as error:
        raise _damaged(path) from error
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return {name: file[name] for name in file.files if name != LABELS}
    except (
        Exception
    ) as error:  # a damaged file makes numpy raise anything, and advise to read it unsafely
        raise _damaged(path) from error


def _damaged(path: Path) -> RoundhouseError:
    return RoundhouseError(
        f"--input {path}: is a damaged .npz file; write it again with numpy.savez."
    )


def _texts(data: bytes, path: Path) -> Sequence[str]:
    try:
        lines = [line.strip() for line in data.decode().splitlines()]
    except UnicodeDecodeError as error:
        raise RoundhouseError(
            f"--input {path}: is not UTF-8 ({error.reason} at byte {error.start}); write it as UTF-8."
        ) from error
    if path.suffix == ".tsv":
        lines = [line.partition("\t")[2] for line in lines]
    return [line for line in lines if line]


def _of_texts(path: Path, texts: Sequence[str], count: int, binary: bool) -> tuple[list[Body], str]:
    from container.wire import text_request

    groups = [texts[place : place + count] for place in range(0, len(texts) - count + 1, count)]
    _require_rows(path, len(texts), count, "texts")
    used = [text for group in groups for text in group]
    words = sorted(len(text.split()) for text in used)
    told = f"{len(used):,} texts of {path.name}, {words[0]} to {words[-1]} words, {words[len(words) // 2]} in the median"
    return [_body(text_request(group, binary=binary), count) for group in groups], told


def _of_arrays(
    path: Path, arrays: dict[str, Array], count: int, binary: bool
) -> tuple[list[Body], str]:
    from container.wire import array_request

    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise RoundhouseError(
            f"--input {path}: needs arrays with the same number of rows on axis 0; it has {found or 'none'}."
        )
    rows = next(iter(lengths.values()))
    _require_rows(path, rows, count, "rows")
    bodies = []
    try:
        for place in range(0, rows - count + 1, count):
            part = {name: array[place : place + count] for name, array in arrays.items()}
            bodies.append(_body(array_request(part, binary=binary), count))
    except ValueError as error:
        raise RoundhouseError(f"--input {path}: {error}") from error
    shapes = ", ".join(
        f"{name} {list(array.shape[1:])} {array.dtype}" for name, array in arrays.items()
    )
    return bodies, f"{len(bodies) * count:,} rows of {path.name}: {shapes}"


def _body(request: tuple[bytes, str], rows: int) -> Body:
    return Body(data=request[0], content_type=request[1], rows=rows)


def _require_rows(path: Path, found: int, count: int, noun: str) -> None:
    if found < count:
        raise RoundhouseError(
            f"--input {path}: holds {found} {noun}, a request takes {count}; give more, or ask for fewer."
        )


def _limited(bodies: Sequence[Body]) -> tuple[Body, ...]:
    """As many as the load processes should hold."""
    kept: list[Body] = []
    size = 0
    for body in bodies[:MOST_BODIES]:
        size += len(body.data)
        if kept and size > MOST_BYTES:
            break
        kept.append(body)
    return tuple(kept)
