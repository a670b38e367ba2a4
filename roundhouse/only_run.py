"""One run at a time of what writes a folder: the second is refused."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roundhouse.errors import NotReadyError, RoundhouseError

FILE = "run.lock"


@contextmanager
def only_run(folder: Path, what: str, way_out: str) -> Iterator[None]:
    """Hold a folder while the block runs; the kernel lets go of it where the process ends.

    `what` is under way there, such as "a comparison of dev". Raises RoundhouseError while another
    process holds the folder, NotReadyError where it cannot be written.
    """
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = path.open("w", encoding="utf-8")
    except OSError as error:
        raise NotReadyError(
            f"{path}: cannot be written ({error.strerror}); free the folder, then try again."
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RoundhouseError(
                f"Refused: {what} is under way on this machine and holds {folder}; {way_out}."
            ) from None
        yield
