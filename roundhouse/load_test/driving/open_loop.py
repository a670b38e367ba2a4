"""An open loop: requests leave at moments that no answer moves, and their clocks run from those
moments.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from roundhouse.load_test.driving.alarm import Alarm
from roundhouse.load_test.driving.loop import LoadLoop
from roundhouse.load_test.driving.orders import Run
from roundhouse.load_test.driving.sender import Sender
from roundhouse.load_test.traffic import Arrivals


def moments(run: Run, arrivals: Arrivals, seed: int) -> Iterator[float]:
    """Seconds into the phase at which one of `run.workers` processes is to send; all of them
    together have the phase's rate.
    """
    chance = random.Random(f"{seed} {run.number} {run.worker}")
    count = (run.worker + 0.5) if arrivals is Arrivals.even else chance.expovariate(1) * run.workers
    while (moment := run.phase.moment(count)) < run.phase.seconds:
        yield moment
        count += run.workers if arrivals is Arrivals.even else chance.expovariate(1) * run.workers


class OpenLoop(LoadLoop):
    """Submits requests at their moments."""

    def __init__(
        self, sender: Sender, run: Run, alarm: Alarm, arrivals: Arrivals, seed: int
    ) -> None:
        super().__init__(sender, run, alarm, moments(run, arrivals, seed))

    @property
    def finished(self) -> bool:
        """Whether every request has been submitted."""
        return self._coming == math.inf

    def _due(self, moment: float, now: float) -> None:
        self._sender.tally.late(now - moment)
        self._sender.submit(moment)
