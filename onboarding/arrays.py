"""Arrays of an .npz file by their headers: no array is read."""

from __future__ import annotations

import io
import tokenize
import zipfile
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ArrayHeader:
    """One array of the file."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def array_headers(data: bytes) -> tuple[ArrayHeader, ...]:
    """Every array of an .npz file. Raises ValueError with what is wrong."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return tuple(_header(archive, name) for name in archive.namelist())
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError) as error:
        raise ValueError("is no .npz file, or a damaged one") from error


def _header(archive: zipfile.ZipFile, file_name: str) -> ArrayHeader:
    from numpy.lib import format as npy

    name = file_name.removesuffix(".npy")
    with archive.open(file_name) as file:
        try:
            version = npy.read_magic(file)
        except ValueError as error:
            raise ValueError(f"holds {file_name!r}, which is no numpy array") from error
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        try:
            shape, _, dtype = read(file)
        except (ValueError, tokenize.TokenError) as error:
            raise ValueError(f"holds array {name!r} with a damaged header") from error
    if dtype.hasobject:
        raise ValueError(f"holds array {name!r} of Python objects, which are never unpickled")
    return ArrayHeader(name=name, shape=shape, dtype=dtype.str)
