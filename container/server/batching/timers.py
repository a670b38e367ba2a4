"""Timers of the event loop: deadlines of waiting requests, and a watchdog of hanging engines."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from container.server.batching.batch import Job


class Deadlines:
    """One timer of the event loop for the deadlines of all waiting requests.

    Entries of ended requests are removed before they outnumber the others.
    """

    def __init__(self, passed: Callable[[Job], None]) -> None:
        """`passed` is called for every request that is not over at its deadline."""
        self._passed = passed
        self._jobs: dict[int, Job] = {}
        self._heap: list[tuple[float, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, deadline: float, job: Job) -> None:
        """Watch a request; `deadline` is a time of the running event loop."""
        self._jobs[job.base] = job
        heappush(self._heap, (deadline, job.base))
        if len(self._heap) > 2 * len(self._jobs) + 64:
            self._heap = [entry for entry in self._heap if entry[1] in self._jobs]
            heapify(self._heap)
        if deadline < self._timer_at:
            self._arm()

    def forget(self, job: Job) -> None:
        """Drop a request that is over."""
        self._jobs.pop(job.base, None)

    def close(self) -> None:
        """Take the timer off the event loop."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, math.inf

    def _arm(self) -> None:
        """Set the timer to the first deadline that still matters."""
        self.close()
        while self._heap and self._heap[0][1] not in self._jobs:
            heappop(self._heap)
        if self._heap:
            self._timer_at = self._heap[0][0]
            self._timer = asyncio.get_running_loop().call_at(self._timer_at, self._expire)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            job = self._jobs.get(heappop(self._heap)[1])
            if job is not None:
                self._passed(job)
        self._arm()


GRACE_SECONDS = 1.0
"""A batch that is done has this long to report it: the whole process may have stood still."""


class Watchdog:
    """One timer while a batch runs; it costs a batch nothing."""

    def __init__(
        self,
        under_way: Callable[[], Mapping[int, int]],
        *,
        seconds: float,
        on_hang: Callable[[], None],
    ) -> None:
        """`under_way` returns, by busy slot, how many runs it has ended.

        Infinite `seconds` disable it. `on_hang` is called once, when a run has lasted `seconds`, or
        up to twice as long.
        """
        self._under_way, self._seconds, self._on_hang = under_way, seconds, on_hang
        self._seen: Mapping[int, int] = {}
        self.is_resting = seconds < math.inf
        """Whether `start` is wanted."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check after `seconds`, and again for as long as a batch runs."""
        self.is_resting, self._seen = False, self._under_way()
        self._check_in(self._seconds, self._check)

    def close(self) -> None:
        """Take the timer off the event loop for good."""
        self.is_resting = False
        if self._timer is not None:
            self._timer.cancel()

    def _check_in(self, seconds: float, check: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, check)

    def _check(self) -> None:
        now = self._under_way()
        if now.items() & self._seen.items():
            self._check_in(GRACE_SECONDS, self._check_again)
            return
        self._seen = now
        if now:
            self._check_in(self._seconds, self._check)
        else:
            self.is_resting = True

    def _check_again(self) -> None:
        if self._under_way().items() & self._seen.items():
            self._on_hang()
        else:
            self._check()
