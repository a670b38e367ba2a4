"""A closed loop of users on one endpoint, who each wait for an answer before the next request."""

from __future__ import annotations

import contextvars
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from local_cloud.protocol.errors import Reply
from local_cloud.sagemaker.metrics.host_metrics import PAGE_BYTES, Usage
from local_cloud.sagemaker.recommender.traffic import Ramp, Stopping, Window, users_at

LEAST_WINDOW_SECONDS = 0.25
"""However fast time runs, a window sees as much."""
PAUSE_AFTER_ERROR_SECONDS = 0.01

Ask = Callable[[bytes], Reply]
Pace = Callable[[float], float]
"""Real seconds of a wait of AWS's."""


@dataclass(kw_only=True)
class Load:
    """Users who send the bodies of a sample payload in turn; `usage` is that of the servers."""

    ask: Ask
    bodies: Sequence[bytes]
    traffic: Sequence[Ramp]
    stopping: Stopping
    pace: Pace
    usage: Callable[[], Usage]
    ended: threading.Event
    """Set from outside, it ends the load."""
    windows: list[Window] = field(default_factory=list)
    stopped_by: str | None = None
    failures: Counter[str] = field(default_factory=Counter)
    _latencies: list[float] = field(default_factory=list)
    _errors: int = 0
    _wanted: int = 0
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Load the endpoint until the traffic is over, a condition is met or the job ends."""
        over = threading.Event()
        bodies = itertools.cycle(self.bodies)
        users: dict[int, threading.Thread] = {}
        minute = max(self.pace(60), LEAST_WINDOW_SECONDS)
        try:
            for number in itertools.count():
                wanted = users_at(self.traffic, number * 60)
                if wanted is None or self.stopped_by or self.ended.is_set():
                    break
                self._wanted = wanted
                for user in range(wanted):
                    if user not in users or not users[user].is_alive():
                        users[user] = self._start_user(user, bodies, over)
                self._watch(wanted, minute)
        finally:
            over.set()
            for thread in users.values():
                thread.join()

    def _start_user(
        self, number: int, bodies: itertools.cycle[bytes], over: threading.Event
    ) -> threading.Thread:
        run = contextvars.copy_context().run
        thread = threading.Thread(target=run, args=(self._use, number, bodies, over), daemon=True)
        thread.start()
        return thread

    def _watch(self, users: int, seconds: float) -> None:
        begun, before = time.monotonic(), self.usage()
        with self._turn:
            self._latencies, self._errors = [], 0
        self.ended.wait(seconds)
        with self._turn:
            latencies, errors = tuple(self._latencies), self._errors
        took, after = time.monotonic() - begun, self.usage()
        memory = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
        window = Window(
            users=users,
            seconds=took,
            latencies=latencies,
            errors=errors,
            cpu_percent=max(0.0, 100 * (after.cpu_seconds - before.cpu_seconds) / took),
            memory_percent=100 * after.memory_bytes / memory,
        )
        if not self.ended.is_set():
            self.windows.append(window)
            refused = window.errors > 0 and not window.latencies
            self.stopped_by = "errors" if refused else self.stopping.reason(self.windows)

    def _use(self, number: int, bodies: itertools.cycle[bytes], over: threading.Event) -> None:
        """Send requests until the load is over, or has fewer users than this one's number."""
        while number < self._wanted and not over.is_set():
            with self._turn:
                body = next(bodies)
            begun = time.monotonic()
            status, _headers, answer = self.ask(body)
            seconds = time.monotonic() - begun
            with self._turn:
                if status == 200:
                    self._latencies.append(seconds)
                else:
                    self._errors += 1
                    self.failures[answer.decode(errors="replace")[:500]] += 1
            if status != 200:
                over.wait(PAUSE_AFTER_ERROR_SECONDS)
