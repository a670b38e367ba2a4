"""Ctrl-C, remembered: a library that is being loaded may turn it into an error of its own, or
swallow it.
"""

from __future__ import annotations

import signal
from types import FrameType

_seen: list[int] = []


def install() -> None:
    """Makes Ctrl-C, a closed terminal and a polite kill end this process the same way."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _remember)


def ignore() -> None:
    """Lets the tidying up go through to its end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def release() -> None:
    """Lets Ctrl-C end the process at once and in silence: all is done and said."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def seen() -> bool:
    """Whether the user wants this process to end."""
    return bool(_seen)


def check() -> None:
    """Raises KeyboardInterrupt when the user's was swallowed."""
    if _seen:
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    _seen.append(number)
    raise KeyboardInterrupt
