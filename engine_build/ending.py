"""How a program that builds ends: its result on stdout, or one sentence and an exit code."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn, TextIO

from engine_build.errors import BuildError, InputRefused, one_line
from engine_build.log import Log

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
