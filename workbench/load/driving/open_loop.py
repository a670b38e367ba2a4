"""An open loop: requests leave at moments that no answer moves, and their clocks run from those moments."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator

from workbench.load.driving.alarm import Alarm
from workbench.load.driving.orders import Run
from workbench.load.driving.sender import Sender
from workbench.load.traffic import Arrivals, Phase


def moments(run: Run, arrivals: Arrivals, seed: int) -> Iterator[float]:
    """Seconds into the phase at which one of `run.workers` processes is to send; all of them together have the phase's rate."""
    chance = random.Random(f"{seed} {run.number} {run.worker}")
    count = (run.worker + 0.5) if arrivals is Arrivals.even else chance.expovariate(1) * run.workers
    while (moment := run.phase.moment(count)) < run.phase.seconds:
        yield moment
        count += run.workers if arrivals is Arrivals.even else chance.expovariate(1) * run.workers


class OpenLoop:
    """Submits requests at their moments."""

    def __init__(self, sender: Sender, run: Run, alarm: Alarm, arrivals: Arrivals, seed: int) -> None:
        self._sender, self._begin, self._alarm = sender, run.begin, alarm
        self._moments = moments(run, arrivals, seed)
        self._coming = self._following()
        self.phase: Phase = run.phase
        self.users = 0

    def start(self) -> None:
        """Sets the first alarm."""
        if self._coming < math.inf:
            self._alarm.set(self._coming)

    @property
    def finished(self) -> bool:
        """Whether every request has been submitted."""
        return self._coming == math.inf

    def rung(self) -> None:
        """Submits whatever is due."""
        now = time.monotonic()
        while self._coming <= now:
            self._sender.tally.late(now - self._coming)
            self._sender.submit(self._coming)
            self._coming = self._following()
        self.start()

    def stop(self) -> None:
        """Submits nothing more."""
        self._coming = math.inf

    def _following(self) -> float:
        return self._begin + next(self._moments, math.inf)
