"""The build log: plain lines, to a stream and to a file, and how long each step took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


class Log:
    """Writes each line at once, so that a killed build leaves everything it said."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._file: Path | None = None
        self._clock = clock
        self.seconds: dict[str, float] = {}
        """Of every step that ended."""

    @property
    def path(self) -> Path | None:
        """The file, once there is one."""
        return self._file

    def keep(self, path: Path) -> None:
        """Writes a copy of every further line to a file, which starts empty."""
        path.write_text("", encoding="utf-8")
        self._file = path

    def line(self, text: str) -> None:
        """One line, or several."""
        print(text, file=self._stream, flush=True)
        self.note(text)

    def note(self, text: str) -> None:
        """Something for the file alone."""
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(text + "\n")

    @contextmanager
    def step(self, name: str, intent: str) -> Iterator[None]:
        """Says what a step will do, and how long it took."""
        self.line(f"{name}: {intent}")
        begin = self._clock()
        yield
        self.seconds[name] = self._clock() - begin
        self.line(f"{name} … {self.seconds[name]:.1f} seconds")
