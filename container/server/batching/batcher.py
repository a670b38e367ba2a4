"""Runs waiting rows as soon as a slot of the engine is idle, and returns each answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from container.server.batching.batch import Batch, BatchObserver, Drop, Job, Limits
from container.server.batching.failures import (
    BROKEN,
    CLOSED,
    FailedRequest,
    FaultIsolation,
    admission_refusal,
    engine_refusal,
)
from container.server.batching.fair_queue import FairQueue, Head
from container.server.batching.selection import (
    TYPICAL_LENGTH,
    BatchLimits,
    Pick,
    least_window,
    row_edges,
    select_rows,
    total_rows,
    window_rows,
)
from container.server.batching.slots import (
    IDLE_INLINE_SECONDS,
    THREAD_SWITCH_SECONDS,
    Outcome,
    RunEnded,
    Slots,
    SlotThread,
    Watchdog,
)
from container.server.engines.engine import Costs, Engine, LinearCosts, is_memory_shortage
from container.server.types import (
    Arrays,
    DeadlinePassed,
    RequestFault,
    Unavailable,
)


class Batcher:
    """A bounded queue before an engine's slots; methods run on the event loop, never block."""

    def __init__(
        self,
        *,
        engine: Engine,
        probe: Sequence[Any],
        limits: Limits,
        costs: Costs | None = None,
        kind: Callable[[Any], Hashable] | None = None,
        observer: BatchObserver | None = None,
        threads: Sequence[SlotThread] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`probe` are rows that every sound engine answers; rows of one `kind` share a batch.

        `threads`: one a slot. `clock`: the event loop's time, but finer than uvloop's whole
        milliseconds.
        """
        self._probe, self._limits = probe, limits
        self._costs: Costs = LinearCosts() if costs is None else costs
        self._observer = BatchObserver() if observer is None else observer
        max_rows, buckets = engine.max_rows, engine.sequence_buckets
        self._batch_limits = BatchLimits(max_rows=max_rows, max_tokens=limits.max_tokens)
        usual, longest = TYPICAL_LENGTH, max(1, limits.max_tokens // max_rows)
        if buckets is not None:
            usual, longest = buckets[0], buckets[-1]
        self._edges = row_edges(self._costs, max_rows=max_rows, longest=longest)
        self._least_window = least_window(self._costs, max_rows=max_rows, length=usual)
        self._queue = FairQueue(limits=self._batch_limits, buckets=buckets, kind=kind)
        self._clock = clock
        self._slots = Slots(engine, threads)
        self._watchdog = Watchdog(
            self._slots.under_way, seconds=limits.run_seconds, on_hang=self._engine_hangs
        )
        self._may_prefetch = engine.slots == 1
        self._inline_rows = engine.inline_rows
        self._prefetched = self._dispatching = False
        self._prefetch_from_rows: float = math.inf
        """Rows that must be queued before the next attempt to prefetch; infinite while one is."""
        self._rows_ever = 0
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self.is_broken = self.closed = False

    @property
    def waiting(self) -> int:
        """Rows that no batch holds yet."""
        return self._queue.live

    def submit(
        self, rows: Sequence[Any], *, deadline: float | None = None, alone: bool = False
    ) -> asyncio.Future[Arrays]:
        """Queue rows and return their answers to come: one array per output, rows in order.

        Cancelling removes the rows; `deadline` is a time of the event loop. A row that comes
        `alone`, while no other request is under way, may be answered when this returns. Raises
        QueueFull, TooLarge, DeadlinePassed, Unavailable; the future may fail with EngineRefused
        too.
        """
        loop = self._event_loop
        if loop is None:  # only once: uvloop takes its time
            loop = self._event_loop = asyncio.get_running_loop()
        now, size = self._clock(), len(rows)
        if (
            (deadline is not None and deadline <= now)
            or self.is_broken
            or self.closed
            or not 0 < size <= self._limits.queue_rows - self._queue.live
        ):
            raise self._refusal(size)
        job = Job(rows, self._rows_ever, now, self._request_ended, loop)
        self._rows_ever += size
        at_once = alone and size == 1 and self._run_at_once(job)
        if not at_once:
            self._queue.add(job)
        if deadline is not None and not job.done():
            job.timer = loop.call_at(deadline, self._deadline_passed, job)
        if not (at_once or self._dispatching) and (
            self._slots.idle or self._queue.live >= self._prefetch_from_rows
        ):
            # At the end of this turn of the loop: what came in the same turn shares a batch.
            self._dispatching = True
            loop.call_soon(self._dispatch)
        return job

    def refuse(self, rows: int) -> None:
        """Raise what `submit` would raise now, before the rows are tokenized."""
        if self.is_broken or self.closed or rows > self._limits.queue_rows - self._queue.live:
            raise self._refusal(rows)

    def close(self) -> None:
        """Refuse queued and new requests, and end the threads after their current batch."""
        self.closed = True
        self._refuse_waiting(CLOSED, "closing")
        self._watchdog.close()
        self._slots.close()

    def _refusal(self, rows: int) -> RequestFault:
        """Record and return why a request of so many rows is not admitted."""
        if not rows:
            return RequestFault("The request holds no rows; send one at least.")
        waiting, most = self._queue.live, self._limits.queue_rows
        reason, fault = admission_refusal(
            rows, waiting=waiting, most=most, is_broken=self.is_broken, closed=self.closed
        )
        self._observer.record_drop(reason=reason, rows=rows)
        return fault

    def _request_ended(self, job: Job, reason: Drop | None) -> None:
        """Remove an ended request from the queue, and record how it ended."""
        if job.queued:
            self._queue.remove(job)
        if reason is None:
            self._observer.request_over(queue_seconds=job.left_at - job.submitted_at)
        else:
            self._observer.record_drop(reason=reason, rows=job.size)

    def _deadline_passed(self, job: Job) -> None:
        waited = f"{self._clock() - job.submitted_at:.3g} s"
        too_late = f"The request waited {waited}, as long as it may; try again in a second."
        job.fail(DeadlinePassed(too_late), "deadline")

    def _dispatch(self) -> None:
        """Start a batch on every idle slot and, with a single slot, prefetch the next batch."""
        self._dispatching = False
        while self._slots.idle and self._queue.live:
            head = self._queue.head()
            picks = self._share(head)
            self._start(head, picks, self._slots.idle.pop())
        self._prefetch_from_rows = math.inf
        # A batch may have ended in this turn, before rows of the same turn were queued.
        if self._may_prefetch and not (self._slots.idle or self._prefetched):
            self._prefetch()

    def _prefetch(self) -> None:
        """Queue the next batch behind the running one if it is full, or no new row could join."""
        if not self._queue.live:
            self._prefetch_from_rows = 1
            return
        head = self._queue.head()
        picks = self._picks(head, self._batch_limits)
        missing = self._batch_limits.rows(picks[-1].length) - total_rows(picks)
        if missing and self._queue.live < self._least_window:
            quarter = self._batch_limits.max_rows // 4
            self._prefetch_from_rows = self._queue.live + max(missing, quarter)
        else:
            self._prefetched = True
            self._start(head, picks, 0)

    def _share(self, head: Head) -> list[Pick]:
        """Return the next batch, or a part of it when several idle slots are faster than one."""
        picks = self._picks(head, self._batch_limits)
        rows, longest = total_rows(picks), picks[-1].length
        share = -(-self._queue.live // len(self._slots.idle))
        seconds = self._costs.seconds
        if share >= rows or seconds(share, longest) >= seconds(rows, longest):
            return picks
        limits = BatchLimits(max_rows=share, max_tokens=self._batch_limits.max_tokens)
        return self._picks(head, limits)

    def _picks(self, head: Head, limits: BatchLimits) -> list[Pick]:
        window = window_rows(self._least_window, self._queue.live)
        count = partial(self._queue.count, head.queues, before=head.row[1] + window)
        return select_rows(
            head.queues.lengths,
            head.head_at,
            count,
            limits=limits,
            costs=self._costs,
            edges=self._edges,
        )

    def _start(self, head: Head, picks: Sequence[Pick], slot: int) -> None:
        rows = self._queue.take(head, picks)
        batch = Batch(rows, longest=picks[-1].length, now=self._clock())
        if not self._runs_inline(batch):
            self._run(slot, batch.rows, partial(self._run_ended, batch, slot), batch.is_over)
            return
        self._run_inline(batch, slot)

    def _run_at_once(self, job: Job) -> bool:
        """Run a request of one row on the event loop; return False where nothing may run there.

        A queue and two turns of the event loop took 80 of the 280 microseconds that a request of
        one text took beside its tokens and its engine.
        """
        length = self._queue.padded_length(job.rows[0])
        if (
            self._queue.live
            or self._slots.running
            or not self._inline_rows
            or self._costs.seconds(1, length) > IDLE_INLINE_SECONDS
        ):
            return False
        batch = Batch([(0, job.base, job)], longest=length, now=job.submitted_at)
        self._run_inline(batch, self._slots.idle.pop())
        return True

    def _run_inline(self, batch: Batch, slot: int) -> None:
        outcome, seconds = self._slots.run_inline(slot, batch.rows)
        if isinstance(outcome, Exception):
            self._isolate(batch, slot, outcome)
        else:
            self._slots.free(slot)
            batch.deliver(outcome)
            assert self._event_loop is not None
            # After the answer is written, which happens in this turn of the event loop.
            self._event_loop.call_soon(self._observe, batch, seconds)

    def _run(
        self, slot: int, rows: Sequence[Any], ended: RunEnded, over: Callable[[], bool]
    ) -> None:
        self._slots.run(slot, rows, ended, over)
        if self._watchdog.is_resting:
            self._watchdog.start()

    def _runs_inline(self, batch: Batch) -> bool:
        rows = len(batch.rows)
        if rows > self._inline_rows or self._prefetched:
            return False
        seconds = self._costs.seconds(rows, batch.padded_tokens // rows)
        alone = not self._queue.live and len(self._slots.idle) == self._slots.count - 1
        return seconds <= (IDLE_INLINE_SECONDS if alone else THREAD_SWITCH_SECONDS)

    def _run_ended(self, batch: Batch, slot: int, outcome: Outcome, seconds: float) -> None:
        """Start the next batch, then deliver the answers of the one that ended."""
        if isinstance(outcome, Exception):
            self._isolate(batch, slot, outcome)
            return
        self._free(slot)
        if outcome is not None:
            batch.deliver(outcome)
            self._observe(batch, seconds)

    def _observe(self, batch: Batch, seconds: float) -> None:
        self._observer.batch_ran(
            rows=len(batch.rows),
            tokens=batch.tokens,
            padded_tokens=batch.padded_tokens,
            engine_seconds=seconds,
        )

    def _free(self, slot: int) -> None:
        """Release a slot after a batch: it runs the prefetched batch, or is idle."""
        if self._prefetched:
            self._prefetched = False
        else:
            self._slots.free(slot)
        self._dispatch()

    def _isolate(self, batch: Batch, slot: int, fault: Exception) -> None:
        self._failed(fault, len(batch.rows))
        if self.is_broken:
            failed = [(part.job, fault) for part in batch.request_parts()]
            self._end_isolation(slot, failed, None)
            return
        FaultIsolation(
            batch,
            fault,
            run=partial(self._run, slot),
            probe=self._probe,
            failed=self._failed,
            over=partial(self._end_isolation, slot),
        ).proceed()

    def _failed(self, fault: Exception, rows: int) -> None:
        self._observer.engine_failed(fault=fault, rows=rows)

    def _end_isolation(
        self, slot: int, failed_requests: Sequence[FailedRequest], probed: Exception | None
    ) -> None:
        """Fail the faulty requests; when the engine is broken, fail all queued requests too."""
        # Memory that others have is no fault of this engine: what is recorded goes on, and it may
        # be free again later (seen on an H100: tests/gpu/test_plan_faults.py).
        self.is_broken = self.is_broken or not (probed is None or is_memory_shortage(probed))
        for job, fault in failed_requests:
            reason, refusal = engine_refusal(fault, is_broken=self.is_broken)
            job.fail(refusal, reason)
        if self.is_broken:
            self._refuse_waiting(BROKEN, "broken")
        self._free(slot)

    def _engine_hangs(self) -> None:
        self.is_broken = True
        hangs = TimeoutError(
            f"The engine has run one batch for more than {self._limits.run_seconds:g} s and hangs; "
            "this server waits to be replaced."
        )
        self._failed(hangs, 0)
        self._refuse_waiting(BROKEN, "broken")

    def _refuse_waiting(self, sentence: str, reason: Drop) -> None:
        for job in self._queue.jobs():
            job.fail(Unavailable(sentence), reason)
