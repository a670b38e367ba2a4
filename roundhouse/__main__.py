"""The door of the `roundhouse` command: Ctrl-C has its one sentence before anything that takes time
is loaded.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from roundhouse import interruption


def main() -> NoReturn:
    """Runs the command line; every error ends as one sentence on standard error and an exit code."""
    interruption.install()
    try:
        from roundhouse.cli.app import exit_code

        code = exit_code()
    except BaseException:
        # What was being loaded may have turned Ctrl-C into an error of its own.
        if not interruption.seen():
            raise
        print("Stopped.", file=sys.stderr)
        code = 130
    interruption.release()
    sys.exit(code)


if __name__ == "__main__":
    main()
