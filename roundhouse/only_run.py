"""One run at a time of what writes a folder: the second is refused, and told who holds it."""

from __future__ import annotations

import datetime
import fcntl
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roundhouse.errors import NotReadyError, RoundhouseError

FILE = "run.lock"
MOST_WORDS = 1000


@contextmanager
def only_run(folder: Path, what: str, way_out: str) -> Iterator[None]:
    """Hold a folder while the block runs; the kernel lets go of it where the process ends.

    `what` is under way there, such as "a comparison of dev". Raises RoundhouseError while another
    process holds the folder, NotReadyError where it cannot be written.
    """
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise NotReadyError(
            f"{path}: cannot be written ({error.strerror}); free the folder, then try again."
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, MOST_WORDS).decode(errors="replace").strip()
            raise RoundhouseError(
                f"Refused: {what} is under way on this machine ({holder or 'another process'}, "
                f"which holds {folder}); {way_out}."
            ) from None
        os.truncate(handle, 0)
        os.write(handle, _words().encode()[:MOST_WORDS])
        yield
        os.truncate(handle, 0)
    finally:
        os.close(handle)


def _words() -> str:
    """Return which process this is, since when, and its command."""
    now = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return f"process {os.getpid()} since {now}: {shlex.join(['roundhouse', *sys.argv[1:]])}"
