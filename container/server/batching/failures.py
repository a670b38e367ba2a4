"""Finds which request of a failed batch is at fault, and words its refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from container.server.batching.batch import Batch, Drop, Job, RequestPart
from container.server.batching.slots import Outcome, RunEnded
from container.server.engines.engine import is_memory_shortage
from container.server.types import (
    DeadlinePassed,
    EngineRefused,
    MemoryShort,
    QueueFull,
    RequestFault,
    TooLarge,
    Unavailable,
)

BROKEN = "The engine fails on every request; this server waits to be replaced."
CLOSED = "This server is stopping; try again in a second."
LATE = "The request's time was over before it could wait for the engine; try again in a second."
REFUSED = "The engine cannot run this request; others are not affected."
SHORT = (
    "Memory is too short for this request beside what is loaded and runs now; try again in "
    "a second, or send fewer rows."
)


FailedRequest = tuple[Job, Exception]
"""A request that failed alone, and its fault."""


def admission_refusal(
    rows: int, *, waiting: int, most: int, is_broken: bool, closed: bool
) -> tuple[Drop, RequestFault]:
    """Return why a request is refused by a queue in which at most so many rows may wait."""
    if is_broken:
        return "broken", Unavailable(BROKEN)
    if closed:
        return "closing", Unavailable(CLOSED)
    if rows > most:
        return "too_large", TooLarge(
            f"The request has {rows} rows and at most {most} may wait; send it in parts."
        )
    if waiting + rows > most:
        return "queue_full", QueueFull(
            f"{waiting} rows wait already, this request has {rows}, and at most {most} may "
            "wait; try again in a second."
        )
    return "deadline", DeadlinePassed(LATE)


def engine_refusal(fault: Exception, *, is_broken: bool) -> tuple[Drop, RequestFault]:
    """Return the fault of a request on which the engine fails."""
    if is_broken:
        return "broken", Unavailable(BROKEN)
    if is_memory_shortage(fault):
        return "memory", MemoryShort(SHORT)
    return "refused", EngineRefused(REFUSED)


class FaultIsolation:
    """Runs the requests of a failed batch one by one, then the probe if the last ones failed.

    A request that fails after others were answered may have met a dying engine: only an answer
    after it shows that the request was at fault. It occupies the slot on which the batch failed.
    """

    def __init__(
        self,
        batch: Batch,
        fault: Exception,
        *,
        run: Callable[[Sequence[Any], RunEnded, Callable[[], bool]], None],
        probe: Sequence[Any],
        failed: Callable[[Exception, int], None],
        over: Callable[[Sequence[FailedRequest], Exception | None], None],
    ) -> None:
        """`fault` is the batch's; `failed` is called for every further failure, with its rows.

        `over` is called once, at the end, with the requests that failed alone, and the probe's
        fault if it failed too.
        """
        self._run, self._probe, self._failed, self._end = run, probe, failed, over
        self._to_run = batch.request_parts()[::-1]
        self._failed_requests: list[FailedRequest] = []
        if len(self._to_run) == 1:
            self._failed_requests = [(self._to_run.pop().job, fault)]
        self._works = False
        """True when the engine has answered since a request last failed alone."""

    def proceed(self) -> None:
        """Run the next request alone, then the probe, then end."""
        while self._to_run:
            part = self._to_run.pop()
            if not part.job.done():
                self._run(part.rows, partial(self._ran, part), part.job.done)
                return
        if self._failed_requests and not self._works:
            self._run(self._probe, self._probed, bool)
        else:
            self._end(self._failed_requests, None)

    def _ran(self, part: RequestPart, outcome: Outcome, _: float) -> None:
        if isinstance(outcome, Exception):
            self._works = False
            self._failed_requests.append((part.job, outcome))
            self._failed(outcome, len(part.rows))
        elif outcome is not None:
            self._works = True
            part.deliver(outcome)
        self.proceed()

    def _probed(self, outcome: Outcome, _: float) -> None:
        fault = outcome if isinstance(outcome, Exception) else None
        if fault is not None:
            self._failed(fault, len(self._probe))
        self._end(self._failed_requests, fault)
