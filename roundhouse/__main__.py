"""The `roundhouse` command; Ctrl-C is handled before anything that takes time is loaded."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn, TextIO

from roundhouse import interruption


class OutputStream:
    """Standard output that drops text once its reader is gone, as in `status | head -1`.

    The command then ends as if all had been read: with its own exit code.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._discard()
            return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _discard(self) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)


def main() -> NoReturn:
    """Run the command line; every error ends as one sentence on standard error and an exit code."""
    interruption.install()
    stream: Any = OutputStream(sys.stdout)
    sys.stdout = stream
    try:
        from roundhouse.cli.app import exit_code

        code = exit_code()
    except BaseException:
        # What was being loaded may have turned Ctrl-C into an error of its own.
        if not interruption.is_requested():
            raise
        print("Stopped.", file=sys.stderr)
        code = 130
    interruption.release()
    sys.exit(code)


if __name__ == "__main__":
    main()
