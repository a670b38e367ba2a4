"""Ctrl-C, remembered.

A library that is being loaded may turn it into an error of its own, or swallow it.
"""

from __future__ import annotations

import signal
from types import FrameType

_seen: list[int] = []


def install() -> None:
    """Make Ctrl-C, a closed terminal and a polite kill end this process the same way."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _remember)


def ignore() -> None:
    """Ignore Ctrl-C while the command cleans up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def release() -> None:
    """Let Ctrl-C end the process at once and without a message."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def is_requested() -> bool:
    """Return whether the user wants this process to end."""
    return bool(_seen)


def check() -> None:
    """Raise KeyboardInterrupt when a library swallowed the user's."""
    if _seen:
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    _seen.append(number)
    raise KeyboardInterrupt
