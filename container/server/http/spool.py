"""Bytes that are gathered in pieces: few stay in memory, many lie in a file without a name."""

from __future__ import annotations

import mmap
import tempfile
from typing import IO, cast

from container.server.types import Unavailable

HELD_BYTES = 8 << 20
"""Above InvokeEndpoint's 6 MiB: only bodies of asynchronous endpoints are written to a file."""
PIECES_AT_MOST = 256
"""So many pieces are kept as they came."""


class Spool:
    """Gathers bytes, the larger ones in a file of the folder that TMPDIR names.

    The kernel writes its pages out when memory is short, so a body of 1 GiB holds no memory.
    """

    def __init__(self, *, held_bytes: int = HELD_BYTES) -> None:
        self._held_bytes = held_bytes
        self._pieces: list[bytes | bytearray] = []
        self._file: IO[bytes] | None = None
        self.size = 0

    def write(self, piece: bytes) -> None:
        """Add a piece. Raises Unavailable where the disk has no room."""
        self.size += len(piece)
        if self._file is None and self.size <= self._held_bytes:
            self._hold(piece)
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by contents or close
                self._file.writelines(self._pieces)
                self._pieces = []
            self._file.write(piece)
        except OSError as fault:
            raise Unavailable(
                f"The server has no room on its disk for {self.size} bytes ({fault.strerror})."
            ) from fault

    def contents(self) -> bytes:
        """Return all of it: bytes, or a memoryview of the file's pages. Raises Unavailable.

        Whoever reads bodies slices, parses and writes the one as the other.
        """
        if self._file is None:
            pieces = self._pieces
            return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
        try:
            with self._file as file:
                file.flush()
                pages = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
                return cast(bytes, memoryview(pages))
        except OSError as fault:
            raise Unavailable(
                f"The server has no room on its disk for {self.size} bytes ({fault.strerror})."
            ) from fault

    def close(self) -> None:
        """Forget what was gathered."""
        self._pieces = []
        if self._file is not None:
            self._file.close()

    def _hold(self, piece: bytes) -> None:
        self._pieces.append(piece)
        if len(self._pieces) == PIECES_AT_MOST:
            # A body in chunks of two bytes would take twenty times its size.
            first = self._pieces[0]
            whole = first if isinstance(first, bytearray) else bytearray(first)
            whole += b"".join(self._pieces[1:])
            self._pieces = [whole]
