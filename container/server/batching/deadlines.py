"""When waiting requests run out of time: one timer of the event loop for all of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from container.server.batching.job import Job


class Deadlines:
    """A heap of deadlines; those of requests that are over are swept out before they outnumber the
    others.
    """

    def __init__(self, passed: Callable[[Job], None]) -> None:
        """`passed` is called for every request that is not over at its deadline."""
        self._passed = passed
        self._jobs: dict[int, Job] = {}
        self._heap: list[tuple[float, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, deadline: float, job: Job) -> None:
        """`deadline` is a time of the running event loop."""
        self._jobs[job.base] = job
        heappush(self._heap, (deadline, job.base))
        if len(self._heap) > 2 * len(self._jobs) + 64:
            self._heap = [entry for entry in self._heap if entry[1] in self._jobs]
            heapify(self._heap)
        if deadline < self._rings_at:
            self._arm()

    def forget(self, job: Job) -> None:
        """A request is over."""
        self._jobs.pop(job.base, None)

    def close(self) -> None:
        """Takes the timer off the event loop."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = None, math.inf

    def _arm(self) -> None:
        """Sets the timer to the first deadline that still matters."""
        self.close()
        while self._heap and self._heap[0][1] not in self._jobs:
            heappop(self._heap)
        if self._heap:
            self._rings_at = self._heap[0][0]
            self._timer = asyncio.get_running_loop().call_at(self._rings_at, self._ring)

    def _ring(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            job = self._jobs.get(heappop(self._heap)[1])
            if job is not None:
                self._passed(job)
        self._arm()
