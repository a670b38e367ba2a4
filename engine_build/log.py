"""The build log: plain lines, to a stream and to a file, with the time of each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TextIO, TypeVar

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")
PROGRESS_SECONDS = 10.0
"""Between two lines of progress."""


class Log:
    """Writes each line at once, so that a killed build leaves everything it said."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self.path: Path | None = None
        """The file, once there is one."""
        self._clock = clock
        self._progress = clock()
        self.seconds: dict[str, float] = {}
        """Of every step that ended."""

    def keep(self, path: Path) -> None:
        """Writes a copy of every further line to a file, which starts empty."""
        path.write_text("", encoding="utf-8")
        self.path = path

    def line(self, text: str) -> None:
        """One line, or several."""
        self.note(text)
        self._write(f"{text}\n")

    def progress(self, text: str) -> None:
        """How far the step under way is: a line, seldom."""
        if self._clock() - self._progress >= PROGRESS_SECONDS:
            self._progress = self._clock()
            self.line(f"  … {text}")

    def count_calls(
        self, function: Callable[[ArgumentT], ResultT], total: int, unit: str
    ) -> Callable[[ArgumentT], ResultT]:
        """The function, telling progress at each of its `total` calls: "12 of 36 batches"."""
        calls = count()

        def counting_call(argument: ArgumentT) -> ResultT:
            self.progress(f"{next(calls)} of {total} {unit}")
            return function(argument)

        return counting_call

    def note(self, text: str) -> None:
        """Something for the file alone."""
        if self.path is None:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text + "\n")
        except OSError as error:
            # A full disk must not keep the build from saying so.
            path, self.path = self.path, None
            self._write(f"  {path} takes no more lines: {error.strerror}\n")

    @contextmanager
    def step(self, name: str, intent: str) -> Iterator[None]:
        """Says what a step will do, and how long it took."""
        self.line(f"{name}: {intent}")
        begin = self._progress = self._clock()
        yield
        self.seconds[name] = self._clock() - begin
        self.line(f"{name} … {self.seconds[name]:.1f} seconds")

    def _write(self, text: str) -> None:
        if self._stream.closed:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            # Whoever listened has gone, as at the end of `... | head`; the build goes on, and its
            # file has every line.
            with suppress(OSError):
                self._stream.close()
