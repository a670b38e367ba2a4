"""The build log: plain lines, to a stream and to a file, with the time of each step; and its end.

A program that builds ends with its result on stdout, or with one sentence and an exit code.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO, TypeVar

from engine_build.errors import BuildError, InputRefused, one_line

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")
PROGRESS_SECONDS = 10.0
"""Between two lines of progress."""


class Log:
    """Writes each line at once, so that a killed build leaves everything it said."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.path: Path | None = None
        """The file that gets a copy of every further line, once there is one."""
        self._progress = time.monotonic()
        self.seconds: dict[str, float] = {}
        """Of every step that ended."""

    def line(self, text: str) -> None:
        """One line, or several."""
        self.note(text)
        self._write(f"{text}\n")

    def progress(self, text: str) -> None:
        """How far the step under way is: a line, seldom."""
        if time.monotonic() - self._progress >= PROGRESS_SECONDS:
            self._progress = time.monotonic()
            self.line(f"  … {text}")

    def count_calls(
        self, function: Callable[[ArgumentT], ResultT], total: int
    ) -> Callable[[ArgumentT], ResultT]:
        """The function, telling progress at each of its `total` calls: "12 of 36 batches"."""
        calls = count()

        def counting_call(argument: ArgumentT) -> ResultT:
            self.progress(f"{next(calls)} of {total} batches")
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
        begin = self._progress = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - begin
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


INTERRUPTED = 130
Program = Callable[[Sequence[str], Mapping[str, str], TextIO, TextIO], int]
"""Arguments, environment, stdout and stderr to an exit code."""


def end_in_exit_code(run: Callable[[], str], log: Log, stdout: TextIO, *, as_json: bool) -> int:
    """Print what `run` returns, or why it failed: 0; 1, 3, 4, 5, 6 as in errors.py; 130."""
    try:
        _print_result(run(), stdout)
        return 0
    except BuildError as error:
        code, reason = error.exit_code, str(error)
    except OSError as error:
        subject, fault = error.filename or "the disk", error.strerror or error
        code, reason = 1, f"{subject}: {fault}; repair that, and run the same command again."
    except KeyboardInterrupt:
        code = INTERRUPTED
        reason = "interrupted; the same command goes on from what is finished."
    except Exception as error:
        log.note(traceback.format_exc())
        code, fault = 1, f"{type(error).__name__}: {one_line(error)}"
        reason = f"unforeseen fault, {fault}; please report it with the log."
    path = None if log.path is None else str(log.path)
    if as_json:
        failure = {"status": "failed", "exit_code": code, "reason": reason, "log": path}
        with suppress(InputRefused):
            _print_result(json.dumps(failure), stdout)
    log.line(f"FAILED: {reason}" + ("" if path is None else f" (log: {path})"))
    return code


def interrupt(number: int, frame: FrameType | None) -> None:
    """End the build as Ctrl-C does, once, and with it the processes under way.

    They have sessions of their own, which a signal to this one does not reach.
    """
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def run_program(main: Program) -> NoReturn:
    """End this process with the exit code of a program; SIGTERM ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, interrupt)
    # None where a shell closed them.
    streams = (io.StringIO() if stream is None else stream for stream in (sys.stdout, sys.stderr))
    sys.exit(main(sys.argv[1:], os.environ, *streams))


def _print_result(text: str, stdout: TextIO) -> None:
    """Print and flush, so that a stream without a reader fails here. Raises InputRefused."""
    try:
        print(text, file=stdout, flush=True)
    except (OSError, ValueError) as error:
        # Closed, or Python would try once more at its end and say so with a traceback.
        with suppress(OSError):
            stdout.close()
        raise InputRefused(
            f"stdout takes no result ({error}); mend it, and run the same command again."
        ) from error
