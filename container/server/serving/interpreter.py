"""How the event loop and the engine's threads share Python's one interpreter lock."""

from __future__ import annotations

import sys

SWITCH_SECONDS = 5e-6


def share_interpreter() -> None:
    """Has a thread that waits for the interpreter get it within microseconds.

    A waiting thread asks for the lock after this long, and begins to count anew whenever the lock was free for a moment, as it
    is in every turn of an event loop: with Python's own 5 ms a loop that is always busy left an engine's thread 1 batch/s of 790.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
