"""Slots that never come back: an engine that hangs fails on nothing, so nothing else would tell of
it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

SECOND_LOOK_SECONDS = 1.0
"""A whole process may have stood still, and its timers ring first: a batch that is done has this
long to say so.
"""


class Watch:
    """One timer while anything runs; a batch costs it nothing."""

    def __init__(
        self,
        under_way: Callable[[], Mapping[int, int]],
        *,
        seconds: float,
        hangs: Callable[[], None],
    ) -> None:
        """`under_way`: by busy slot, how many runs it has ended; infinite seconds: nobody looks.

        `hangs` is called once, when a run has lasted `seconds`, or up to twice as long.
        """
        self._under_way, self._seconds, self._hangs = under_way, seconds, hangs
        self._seen: Mapping[int, int] = {}
        self.resting = seconds < math.inf
        """Whether `begin` is wanted."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Looks after a while, and again for as long as anything runs."""
        self.resting, self._seen = False, self._under_way()
        self._look_in(self._seconds, self._look)

    def close(self) -> None:
        """Takes the timer off the event loop for good."""
        self.resting = False
        if self._timer is not None:
            self._timer.cancel()

    def _look_in(self, seconds: float, look: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, look)

    def _look(self) -> None:
        now = self._under_way()
        if now.items() & self._seen.items():
            self._look_in(SECOND_LOOK_SECONDS, self._look_again)
            return
        self._seen = now
        if now:
            self._look_in(self._seconds, self._look)
        else:
            self.resting = True

    def _look_again(self) -> None:
        if self._under_way().items() & self._seen.items():
            self._hangs()
        else:
            self._look()
