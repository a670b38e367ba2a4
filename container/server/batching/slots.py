"""The engine's slots: rows are prepared on the event loop, run in a slot's thread or right there,
and land on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from container.server.batching.slot_thread import Thread, slot_threads
from container.server.engines.engine import Engine
from container.server.types import Arrays

Outcome = Arrays | Exception | None
"""What became of some rows: their answers, the engine's fault, or nothing, because nobody waited
any more.
"""
Landed = Callable[[Outcome, float], None]
"""Called on the event loop with what became of some rows, and the seconds that the engine had them.
"""


class Slots:
    """Which slots are idle, and the way into the others."""

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
        """True while any slot is busy."""
        return len(self.idle) < self.count

    def under_way(self) -> dict[int, int]:
        """By busy slot: how many runs its thread has ended."""
        return {slot: self._ended[slot] for slot in range(self.count) if slot not in self.idle}

    def run(self, slot: int, rows: Sequence[Any], landed: Landed, over: Callable[[], bool]) -> None:
        """Runs rows on a slot, after what runs there; `over` says, when it comes to that, whether
        nobody waits any more.
        """
        loop = asyncio.get_running_loop()
        try:
            prepared = self._engine.prepare(rows)
        except Exception as fault:
            loop.call_soon(landed, fault, 0.0)
        else:
            self._threads[slot].put(
                partial(self._work, prepared, len(rows), slot, landed, over, loop)
            )

    def run_inline(self, slot: int, rows: Sequence[Any]) -> tuple[Arrays | Exception, float]:
        """Runs rows now, on the event loop's thread, in a slot whose own thread rests; what became
        of them, and the seconds.
        """
        begin = perf_counter()
        try:
            prepared = self._engine.prepare(rows)
            begin = perf_counter()
            outcome: Arrays | Exception = _checked(self._engine.run(prepared, slot), len(rows))
        except Exception as fault:
            outcome = fault
        return outcome, perf_counter() - begin

    def free(self, slot: int) -> None:
        """Nothing runs there any more."""
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
        landed: Landed,
        over: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """In the slot's thread."""
        begin = perf_counter()
        outcome: Outcome
        try:
            outcome = None if over() else _checked(self._engine.run(prepared, slot), rows)
        except Exception as fault:
            outcome = fault
        self._ended[slot] += 1
        try:
            loop.call_soon_threadsafe(landed, outcome, perf_counter() - begin)
        except (
            RuntimeError
        ):  # the event loop is closed: nobody waits any more, and nobody will free this slot
            self._threads[slot].close()


def _checked(answers: Arrays, rows: int) -> Arrays:
    """The answers. Raises RuntimeError when they are not one per row."""
    for place, answer in enumerate(answers):
        if not answer.ndim or len(answer) != rows:
            raise RuntimeError(
                f"the engine gave output {place} the shape {list(answer.shape)} for {rows} rows"
            )
    return answers
