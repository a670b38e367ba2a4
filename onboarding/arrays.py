"""Arrays of an .npz file by their headers: without numpy, no array is read."""

from __future__ import annotations

import ast
import io
import struct
import zipfile
from dataclasses import dataclass

_MAGIC = b"\x93NUMPY"


@dataclass(frozen=True, kw_only=True)
class ArrayHeader:
    """One array of the file."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def array_headers(data: bytes) -> tuple[ArrayHeader, ...]:
    """Every array of an .npz file. Raises ValueError with what is wrong.

    The format is numpy's own: a zip of .npy files, each a magic string, a version, a header length
    and a Python literal.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return tuple(_header(archive, name) for name in archive.namelist())
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError) as error:
        raise ValueError("is no .npz file, or a damaged one") from error


def _header(archive: zipfile.ZipFile, name: str) -> ArrayHeader:
    with archive.open(name) as file:
        begin = file.read(8)
        if begin[:6] != _MAGIC:
            raise ValueError(f"holds {name!r}, which is no numpy array")
        length = (
            struct.unpack("<H", file.read(2))
            if begin[6] == 1
            else struct.unpack("<I", file.read(4))
        )
        return _array_header(name.removesuffix(".npy"), file.read(length[0]))


def _array_header(name: str, header: bytes) -> ArrayHeader:
    try:
        fields = ast.literal_eval(header.decode("latin-1").strip())
        shape, dtype = tuple(map(int, fields["shape"])), str(fields["descr"])
    except (ValueError, SyntaxError, KeyError, TypeError) as error:
        raise ValueError(f"holds array {name!r} with a damaged header") from error
    if "O" in dtype:
        raise ValueError(f"holds array {name!r} of Python objects, which are never unpickled")
    return ArrayHeader(name=name, shape=shape, dtype=dtype)
