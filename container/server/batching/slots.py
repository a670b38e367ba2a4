"""The engine's slots, each with a thread that runs one batch at a time, and their watchdog."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from container.server.engines.engine import Engine
from container.server.types import Arrays

THREAD_SWITCH_SECONDS = 50e-6
"""The least time from the event loop to a slot's thread and back."""
IDLE_INLINE_SECONDS = 5e-3
"""How long the event loop may stand still for a batch beside which nothing waits and nothing runs.

A switch to a thread that has slept two milliseconds and back took a quarter of one on a host of an
H200.
"""


class SlotThread:
    """A thread with a queue; passing work to it costs half of an executor's (10 of 19 µs)."""

    def __init__(self, name: str) -> None:
        self._works: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=False).start()

    def put(self, work: Callable[[], None]) -> None:
        """Run `work`, which never raises, after all that was put before; return at once."""
        self._works.put(work)

    def close(self) -> None:
        """End after the work that was put; return at once."""
        self._works.put(None)

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            work()
            del work


Outcome = Arrays | Exception | None
"""The outcome of a run: answers, the engine's fault, or None when every request had ended."""
RunEnded = Callable[[Outcome, float], None]
"""Called on the event loop with the outcome of some rows, and the seconds the engine had them."""


class Slots:
    """The engine's slots: which are idle, and how a batch runs on one."""

    def __init__(self, engine: Engine, threads: Sequence[SlotThread] | None = None) -> None:
        """`threads`: one a slot; new ones, if none are given."""
        self._engine = engine
        self._threads: Sequence[SlotThread] = (
            [SlotThread(f"slot {number}") for number in range(engine.slots)]
            if threads is None
            else threads
        )
        self._closed = False
        self.count = engine.slots
        self.idle = list(range(engine.slots))[::-1]
        self._ended = [0] * engine.slots
        """Runs that each slot's thread has ended."""

    @property
    def running(self) -> bool:
        """True while a slot is busy."""
        return len(self.idle) < self.count

    def under_way(self) -> dict[int, int]:
        """Return, by busy slot, how many runs its thread has ended."""
        return {slot: self._ended[slot] for slot in range(self.count) if slot not in self.idle}

    def run(
        self, slot: int, rows: Sequence[Any], ended: RunEnded, over: Callable[[], bool]
    ) -> None:
        """Run rows on a slot after its current batch, unless `over` returns True by then."""
        loop = asyncio.get_running_loop()
        try:
            prepared = self._engine.prepare(rows)
        except Exception as fault:
            loop.call_soon(ended, fault, 0.0)
            return

        def work() -> None:
            start = perf_counter()
            outcome: Outcome = None
            try:
                if not over():
                    outcome = _check_answers(self._engine.run(prepared, slot), len(rows))
            except Exception as fault:
                outcome = fault
            self._ended[slot] += 1
            try:
                loop.call_soon_threadsafe(ended, outcome, perf_counter() - start)
            except RuntimeError:  # the event loop is closed, so no callback will free this slot
                self._threads[slot].close()

        self._threads[slot].put(work)

    def run_inline(self, slot: int, rows: Sequence[Any]) -> tuple[Arrays | Exception, float]:
        """Run rows now, on the event loop's thread; return the outcome and the seconds."""
        start = perf_counter()
        outcome: Arrays | Exception
        try:
            prepared = self._engine.prepare(rows)
            start = perf_counter()
            outcome = _check_answers(self._engine.run(prepared, slot), len(rows))
        except Exception as fault:
            outcome = fault
        return outcome, perf_counter() - start

    def free(self, slot: int) -> None:
        """Mark a slot as idle."""
        self.idle.append(slot)
        if self._closed:
            self._threads[slot].close()

    def close(self) -> None:
        """End the threads: those of busy slots when they are free."""
        if not self._closed:
            self._closed = True
            for slot in self.idle:
                self._threads[slot].close()


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


def _check_answers(answers: Arrays, rows: int) -> Arrays:
    """Return the answers. Raises RuntimeError when they are not one per row."""
    for output, answer in enumerate(answers):
        if not answer.ndim or len(answer) != rows:
            raise RuntimeError(
                f"the engine gave output {output} the shape {list(answer.shape)} for {rows} rows"
            )
    return answers
