"""A closed loop: each user asks, waits for the answer, and asks again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from roundhouse.load_test.driving.alarm import Alarm
from roundhouse.load_test.driving.loop import LoadLoop
from roundhouse.load_test.driving.orders import Run
from roundhouse.load_test.driving.sender import Sender

FAULT_PAUSE_SECONDS = 0.1
"""A user that was refused asks again a little later, not as fast as the machine can."""


def comings(run: Run) -> Iterator[float]:
    """Seconds into the phase at which the users of one of `run.workers` processes come."""
    user = run.worker
    while (moment := run.phase.spawned(user)) < run.phase.seconds:
        yield moment
        user += run.workers


class ClosedLoop(LoadLoop):
    """Lets users come at their moments, and keeps them asking."""

    def __init__(self, sender: Sender, run: Run, alarm: Alarm) -> None:
        super().__init__(sender, run, alarm, comings(run))
        self._end = run.begin + run.phase.seconds

    @property
    def finished(self) -> bool:
        """Whether the phase is over and nobody asks again."""
        return time.monotonic() >= self._end

    def stop(self) -> None:
        """Nobody comes or asks again."""
        super().stop()
        self._end = 0.0

    def _due(self, moment: float, now: float) -> None:
        self.users += 1
        self._ask()

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
