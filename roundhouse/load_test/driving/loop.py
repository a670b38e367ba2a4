"""What open and closed loops are alike in: something happens at each of some moments of a phase."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator

from roundhouse.load_test.driving.alarm import Alarm
from roundhouse.load_test.driving.orders import Run
from roundhouse.load_test.driving.sender import Sender


class LoadLoop(ABC):
    """Load of one phase; `moments` are seconds into it, ascending."""

    def __init__(self, sender: Sender, run: Run, alarm: Alarm, moments: Iterator[float]) -> None:
        self._sender, self._begin, self._alarm = sender, run.begin, alarm
        self._moments = moments
        self._coming = self._following()
        self.users = 0

    def start(self) -> None:
        """Sets the next alarm."""
        if self._coming < math.inf:
            self._alarm.set(self._coming)

    def rung(self) -> None:
        """Does whatever is due."""
        now = time.monotonic()
        while self._coming <= now:
            self._due(self._coming, now)
            self._coming = self._following()
        self.start()

    def stop(self) -> None:
        """Nothing more is due."""
        self._coming = math.inf

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether no more requests come of it."""
        ...

    @abstractmethod
    def _due(self, moment: float, now: float) -> None:
        """What happens at a moment, a little late as everything is."""
        ...

    def _following(self) -> float:
        return self._begin + next(self._moments, math.inf)
