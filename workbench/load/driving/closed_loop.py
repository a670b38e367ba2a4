"""A closed loop: each user asks, waits for the answer, and asks again."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator

from workbench.load.driving.alarm import Alarm
from workbench.load.driving.orders import Run
from workbench.load.driving.sender import Sender
from workbench.load.traffic import Phase

FAULT_PAUSE_SECONDS = 0.1
"""A user that was refused asks again a little later, not as fast as the machine can."""


def comings(run: Run) -> Iterator[float]:
    """Seconds into the phase at which the users of one of `run.workers` processes come."""
    user = run.worker
    while (moment := run.phase.spawned(user)) < run.phase.seconds:
        yield moment
        user += run.workers


class ClosedLoop:
    """Lets users come at their moments, and keeps them asking."""

    def __init__(self, sender: Sender, run: Run, alarm: Alarm) -> None:
        self._sender, self._begin, self._alarm = sender, run.begin, alarm
        self._end = run.begin + run.phase.seconds
        self._comings = comings(run)
        self._coming = self._following()
        self.phase: Phase = run.phase
        self.users = 0

    def start(self) -> None:
        """Sets the first alarm."""
        if self._coming < math.inf:
            self._alarm.set(self._coming)

    @property
    def finished(self) -> bool:
        """Whether the phase is over and nobody asks again."""
        return time.monotonic() >= self._end

    def rung(self) -> None:
        """Lets in whoever is due."""
        now = time.monotonic()
        while self._coming <= now:
            self.users += 1
            self._ask()
            self._coming = self._following()
        self.start()

    def stop(self) -> None:
        """Nobody asks again."""
        self._end, self._coming = 0.0, math.inf

    def _ask(self) -> None:
        if self.finished:
            return
        self._sender.tally.intended += 1
        self._sender.submit(time.monotonic(), self._answered)

    def _answered(self, answered: bool) -> None:
        if answered:
            self._ask()
        else:
            asyncio.get_running_loop().call_later(FAULT_PAUSE_SECONDS, self._ask)

    def _following(self) -> float:
        return self._begin + next(self._comings, math.inf)
