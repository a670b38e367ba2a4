"""Whose turn it is: nothing starves, large requests hold nobody up, the counts are exact.

The dead take no room.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.server.batching.batch import Job
from container.server.batching.fair_queue import UNIT, FairQueue, QueuedRow
from container.server.batching.selection import BatchLimits, select_rows
from container.server.engines.engine import LinearCosts
from tests.unit.container.batching.harness import Row, run

ROOM = BatchLimits(max_rows=4, max_tokens=400)


class Line:
    """A queue, and batches taken out of it."""

    def __init__(
        self,
        limits: BatchLimits = ROOM,
        buckets: tuple[int, ...] | None = None,
        kind: Callable[[Any], Hashable] | None = None,
    ) -> None:
        self.limits = limits
        self.queue = FairQueue(limits=limits, buckets=buckets, kind=kind)
        self.rows_ever = 0
        self.left: list[set[tuple[Job, int]]] = []

    def add(self, lengths: Sequence[int], kind: int = 0) -> Job:
        rows = [Row((0, place), length, kind=kind) for place, length in enumerate(lengths)]
        remove = lambda job, reason: self.queue.remove(job)
        job = Job(rows, self.rows_ever, 0.0, remove, asyncio.get_running_loop())
        self.rows_ever += job.size
        self.queue.add(job)
        return job

    def take(self) -> list[tuple[Job, int]]:
        """The next batch as (request, place of the row)."""
        head = self.queue.head()
        count = lambda length: self.queue.count(head.queues, length)
        picks = select_rows(
            head.queues.lengths, head.head_at, count, limits=self.limits, costs=LinearCosts()
        )
        queued_rows = self.queue.take(head, picks)
        assert head.row in queued_rows
        for _, _, job in queued_rows:
            job.queued -= 1
        return [(job, number - job.base) for _, number, job in queued_rows]

    def batches_until(self, job: Job) -> int:
        """Batches until all of a request has left."""
        taken = 0
        while job.queued:
            self.take()
            taken += 1
        return taken


LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=20)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(LENGTHS, min_size=1, max_size=6),
    st.integers(1, 5),
    st.sampled_from([[7], [30], [7, 30], [1, 60, 7, 7, 7]]),
)
def test_no_stream_of_newcomers_starves_a_row(requests, newcomers, lengths):
    """Newcomers come as fast as batches leave.

    All that waited before them is gone within a bound.
    """

    async def scenario() -> None:
        line = Line()
        jobs = [line.add(request) for request in requests]
        room_for = line.queue.live + 2 * ROOM.max_rows * newcomers
        batchfuls = max(map(len, requests))
        taken = 0
        while any(job.queued for job in jobs):
            while line.queue.live < room_for:
                line.add(lengths)
            line.take()
            taken += 1
            assert taken <= UNIT * (batchfuls + 1) * room_for

    run(scenario())


def test_newcomers_do_not_keep_a_large_request_from_its_turns():
    """Two full batches of single rows wait always.

    A request of ten batches gets its share of all that run.
    """

    async def scenario() -> None:
        line = Line()
        large = line.add([50] * 4 * 10)
        taken = 0
        while large.queued:
            while line.queue.live - large.queued < 8:
                line.add([5])
            line.take()
            taken += 1
        assert taken <= 10 * (UNIT + 1)

    run(scenario())


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=30),
    st.integers(0, 60),
    st.sampled_from([[5], [5, 5], [5, 5, 5, 5]]),
)
def test_large_requests_let_a_newcomer_in_after_one_batch_each(batchfuls, before, newcomer):
    """However long they have waited and however many rows they have."""

    async def scenario() -> None:
        line = Line()
        jobs = [line.add([5] * 4 * count) for count in batchfuls]
        for _ in range(min(before, sum(batchfuls) - 1)):
            line.take()
        waiting = sum(job.queued > 0 for job in jobs)
        assert line.batches_until(line.add(newcomer)) <= waiting + 1

    run(scenario())


def test_thousand_rows_let_the_next_row_pass():
    async def scenario() -> None:
        line = Line(BatchLimits(max_rows=32, max_tokens=10_000))
        large = line.add([16] * 1024)
        line.take()
        line.take()
        singles = [line.add([length]) for length in (16, 16, 16)]
        assert sum(job in singles for job, _ in line.take()) == 3
        assert large.queued == 1024 - 3 * 32 + 3

    run(scenario())


def test_batchful_counts_tokens_too():
    """Rows of which two fill a batch: every second one starts a turn of its own."""

    async def scenario() -> None:
        line = Line(BatchLimits(max_rows=32, max_tokens=200))
        line.add([100] * 20)
        line.take()
        single = line.add([100])
        assert line.batches_until(single) == 1

    run(scenario())


def test_rows_of_one_bucket_leave_by_arrival():
    async def scenario() -> None:
        line = Line(buckets=(16, 32))
        jobs = [line.add([length]) for length in (16, 3, 9, 1, 12, 2, 20)]
        order = [jobs.index(job) for _ in range(3) for job, _ in line.take()]
        assert order == [0, 1, 2, 3, 4, 5, 6]

    run(scenario())


def test_row_beyond_the_last_bucket_has_its_own_length():
    async def scenario() -> None:
        line = Line(buckets=(16, 32))
        job = line.add([40, 16, 33])
        assert line.queue.head().queues.lengths == [16, 33, 40]
        line.batches_until(job)
        assert line.queue.live == 0

    run(scenario())


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "add", "take", "leave"]), LENGTHS, st.integers(0, 30)),
        max_size=60,
    ),
    st.integers(1, 3),
)
def test_counts_are_exact_and_the_dead_never_outnumber_the_living(steps, kinds):
    async def scenario() -> None:
        line, jobs = Line(kind=None if kinds == 1 else lambda row: row.kind), []
        gone: set[tuple[Job, int]] = set()
        for verb, lengths, which in steps:
            if verb == "add":
                jobs.append(line.add(lengths, kind=which % kinds))
            elif verb == "leave" and which < len(jobs):
                jobs[which].cancel()
            elif verb == "take" and line.queue.live:
                assert line.queue.head().row == min(living(line.queue))
                batch = line.take()
                assert not any(job.done() for job, _ in batch)
                assert not gone & set(batch)
                gone |= set(batch)
            assert line.queue.live == sum(job.queued for job in jobs if not job.done())
            assert line.queue.dead <= line.queue.live
            assert tuples(line.queue) == line.queue.live + line.queue.dead
            assert line.queue.jobs() == {job for job in jobs if job.queued and not job.done()}

    run(scenario())


def tuples(queue: FairQueue) -> int:
    """Everything that the queue's lanes hold."""
    return sum(
        len(rows_waiting)
        for queues in queue._kinds.values()
        for rows_waiting in queues.queues.values()
    )


def living(queue: FairQueue) -> list[QueuedRow]:
    """Every row that waits."""
    queues = [
        rows_waiting for queues in queue._kinds.values() for rows_waiting in queues.queues.values()
    ]
    return [place for rows_waiting in queues for place in rows_waiting if not place[2].done()]


@pytest.mark.parametrize("cancelled", [0, 3])
def test_whose_turn_it_is_takes_no_longer_however_many_kinds_wait(cancelled):
    """Tensors of a thousand shapes are a thousand kinds, and each has a batch of its own."""

    async def scenario() -> None:
        calls = {}
        for kinds in (10, 1000):
            line = Line(kind=lambda row: row.kind)
            jobs = [line.add([5], kind=kind) for kind in range(kinds)]
            for job in jobs[-cancelled:] if cancelled else ():
                job.cancel()
            calls[kinds] = calls_of(line.take)
        assert calls[1000] <= calls[10] + 10

    run(scenario())


def test_turn_stands_after_a_sweep():
    """The lanes' order is not their first rows'.

    The oldest lane begins with a newer row by then.
    """

    async def scenario() -> None:
        line = Line(BatchLimits(max_rows=1, max_tokens=100))
        jobs = [line.add([length]) for length in (5, 6, 5, 7, 7, 7)]
        assert [job for job, _ in line.take()] == jobs[:1]
        for job in jobs[3:]:
            job.cancel()
        assert line.queue.dead == 0
        assert [job for _ in range(2) for job, _ in line.take()] == jobs[1:3]

    run(scenario())


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_count_stops_at_the_first_row_beyond_reach():
    async def scenario() -> None:
        line = Line(BatchLimits(max_rows=10, max_tokens=400))
        line.add([7, 7, 9, 7])
        head = line.queue.head()
        assert [line.queue.count(head.queues, 7, before) for before in (0, 1, 2, 3, 4)] == [
            0,
            1,
            2,
            2,
            3,
        ]

    run(scenario())
