"""The engine's slots: each runs one batch at a time, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Protocol

from container.server.engines.engine import Engine
from container.server.types import Arrays

Work = Callable[[], None]


class Thread(Protocol):
    """Runs work one after another, in order."""

    def put(self, work: Work) -> None:
        """Runs `work` after all that was put before; returns at once."""
        ...

    def close(self) -> None:
        """Ends after the work that was put; returns at once."""
        ...


def slot_threads(slots: int, first: SlotThread | None = None) -> list[SlotThread]:
    """Return one thread per slot, `first` among them.

    Raises RuntimeError when the machine allows no more; those that run then end.
    """
    threads = [] if first is None else [first]
    try:
        while len(threads) < slots:
            threads.append(SlotThread(f"slot {len(threads)}"))
    except BaseException:
        for thread in threads:
            thread.close()
        raise
    return threads


class SlotThread:
    """A thread with a queue.

    Passing work to it costs half of an executor's (10 of 19 microseconds).
    """

    def __init__(self, name: str) -> None:
        self._works: SimpleQueue[Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=False)
        self._thread.start()

    def put(self, work: Work) -> None:
        """Runs `work`, which never raises, after all that was put before."""
        self._works.put(work)

    def close(self) -> None:
        """Ends after the work that was put."""
        self._works.put(None)

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            work()
            del work


THREAD_SWITCH_SECONDS = 50e-6
"""What the way to a slot's thread and back takes at the least.

A batch that runs no longer runs on the event loop.
"""
IDLE_INLINE_SECONDS = 5e-3
"""How long the event loop may stand still for a batch beside which nothing waits and nothing runs.

The way to a thread that has slept two milliseconds and back took a quarter of one on a host of an
H200.
"""


def runs_inline(seconds: float, *, request_parts: bool) -> bool:
    """True when a batch ends sooner on the event loop's thread.

    Blocks nothing else for long.
    """
    return seconds <= THREAD_SWITCH_SECONDS or (request_parts and seconds <= IDLE_INLINE_SECONDS)


Outcome = Arrays | Exception | None
"""The outcome of a run: answers, the engine's fault, or None when every request had ended."""
RunEnded = Callable[[Outcome, float], None]
"""Called on the event loop with what became of some rows, and the seconds that the engine had them.
"""


class Slots:
    """The engine's slots: which are idle, and how a batch runs on one."""

    def __init__(self, engine: Engine, threads: Sequence[Thread] | None = None) -> None:
        """`threads`: one a slot; new ones, if none are given."""
        self._engine = engine
        self._threads: Sequence[Thread] = slot_threads(engine.slots) if threads is None else threads
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
        """By busy slot: how many runs its thread has ended."""
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
        else:
            self._threads[slot].put(
                partial(self._work, prepared, len(rows), slot, ended, over, loop)
            )

    def run_inline(self, slot: int, rows: Sequence[Any]) -> tuple[Arrays | Exception, float]:
        """Run rows now, on the event loop's thread; return the outcome and the seconds."""
        start = perf_counter()
        try:
            prepared = self._engine.prepare(rows)
            start = perf_counter()
            outcome: Arrays | Exception = _check_answers(
                self._engine.run(prepared, slot), len(rows)
            )
        except Exception as fault:
            outcome = fault
        return outcome, perf_counter() - start

    def free(self, slot: int) -> None:
        """Mark a slot as idle."""
        self.idle.append(slot)
        if self._closed:
            self._threads[slot].close()

    def close(self) -> None:
        """Ends the threads: those of busy slots when they are free."""
        if not self._closed:
            self._closed = True
            for slot in self.idle:
                self._threads[slot].close()

    def _work(
        self,
        prepared: Any,
        rows: int,
        slot: int,
        ended: RunEnded,
        over: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """In the slot's thread."""
        start = perf_counter()
        outcome: Outcome
        try:
            outcome = None if over() else _check_answers(self._engine.run(prepared, slot), rows)
        except Exception as fault:
            outcome = fault
        self._ended[slot] += 1
        try:
            loop.call_soon_threadsafe(ended, outcome, perf_counter() - start)
        except RuntimeError:  # the event loop is closed, so no callback will free this slot
            self._threads[slot].close()


def _check_answers(answers: Arrays, rows: int) -> Arrays:
    """Return the answers. Raises RuntimeError when they are not one per row."""
    for place, answer in enumerate(answers):
        if not answer.ndim or len(answer) != rows:
            raise RuntimeError(
                f"the engine gave output {place} the shape {list(answer.shape)} for {rows} rows"
            )
    return answers
