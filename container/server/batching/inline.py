"""Which batches run on the event loop's own thread: those that come back sooner than from a slot's.

Pure.
"""

from __future__ import annotations

HOP_SECONDS = 50e-6
"""What the way to a slot's thread and back takes at the least: a batch that runs no longer runs on
the event loop.
"""
LONE_SECONDS = 5e-3
"""How long the event loop may stand still for a batch beside which nothing waits and nothing runs.

The way to a thread that has slept two milliseconds and back took a quarter of one on a host of an
H200.
"""


def runs_inline(seconds: float, *, alone: bool) -> bool:
    """Whether a batch of so many seconds runs sooner there, and keeps nothing else waiting for
    long.
    """
    return seconds <= HOP_SECONDS or (alone and seconds <= LONE_SECONDS)
