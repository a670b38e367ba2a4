"""Requests at the rates of a walk's phases, each from its due time on, and what came of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from benchmarks.scaling.record import Phase, offered_rate

CALLERS = 10
"""As many as a client keeps connections open."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request: when it was answered, in seconds since the walk began, how long that took, and
    whether it was refused.
    """

    at: float
    milliseconds: float
    failed: bool


@dataclass(kw_only=True)
class Load:
    """Asks in the background until its phases have ended."""

    ask: Callable[[], None]
    phases: Sequence[Phase]
    begun: float = field(default_factory=time.monotonic)
    asked: list[Asked] = field(default_factory=list)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins."""
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    @property
    def now(self) -> float:
        """Seconds since the walk began."""
        return time.monotonic() - self.begun

    @property
    def has_ended(self) -> bool:
        """Whether every request has been answered."""
        return self._thread is not None and not self._thread.is_alive()

    def _run(self) -> None:
        due, last = 0.0, sum(phase.seconds for phase in self.phases)
        with ThreadPoolExecutor(CALLERS, thread_name_prefix="caller") as callers:
            while due < last:
                time.sleep(max(0.0, due - self.now))
                callers.submit(self._ask, due)
                due += 1 / offered_rate(self.phases, due)

    def _ask(self, due: float) -> None:
        try:
            self.ask()
        except Exception:
            failed = True
        else:
            failed = False
        self.asked.append(Asked(at=self.now, milliseconds=(self.now - due) * 1000, failed=failed))
