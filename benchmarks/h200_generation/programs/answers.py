"""The standard output of a program as a channel of answers, apart from what its libraries print."""

from __future__ import annotations

import os
from typing import IO


def open_answers(log: str) -> IO[str]:
    """Return the standard output for answers; all that is printed from now on goes to a file."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    return answers
