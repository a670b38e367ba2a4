"""The order of rows: none starves, large requests delay nobody, counts are exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from container.server.batching.batch import Job
from container.server.batching.fair_queue import UNIT, FairQueue, QueuedRow
from container.server.batching.selection import BatchLimits, select_rows
from container.server.engines.engine import LinearCosts
from tests.unit.container.batching.harness import Row, scenario

LIMITS = BatchLimits(max_rows=4, max_tokens=400)


class Bench:
    """A queue, and batches taken out of it."""

    def __init__(
        self,
        limits: BatchLimits = LIMITS,
        buckets: tuple[int, ...] | None = None,
        kind: Callable[[Any], Hashable] | None = None,
    ) -> None:
        self.limits = limits
        self.queue = FairQueue(limits=limits, buckets=buckets, kind=kind)
        self.rows_ever = 0

    def add(self, lengths: Sequence[int], kind: int = 0) -> Job:
        rows = [Row((0, index), length, kind=kind) for index, length in enumerate(lengths)]
        remove = lambda job, reason: self.queue.remove(job)
        job = Job(rows, self.rows_ever, 0.0, remove, asyncio.get_running_loop())
        self.rows_ever += job.size
        self.queue.add(job)
        return job

    def take(self) -> list[tuple[Job, int]]:
        """The next batch as (request, index of the row)."""
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
@scenario
async def test_no_stream_of_newcomers_starves_a_row(requests, newcomers, lengths):
    """Newcomers come as fast as batches leave; earlier rows are gone within a bound."""
    bench = Bench()
    jobs = [bench.add(request) for request in requests]
    backlog = bench.queue.live + 2 * LIMITS.max_rows * newcomers
    batchfuls = max(map(len, requests))
    taken = 0
    while any(job.queued for job in jobs):
        while bench.queue.live < backlog:
            bench.add(lengths)
        bench.take()
        taken += 1
        assert taken <= UNIT * (batchfuls + 1) * backlog


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=30),
    st.integers(0, 60),
    st.sampled_from([[5], [5, 5], [5, 5, 5, 5]]),
)
@scenario
async def test_large_requests_let_a_newcomer_in_after_one_batch_each(batchfuls, before, newcomer):
    """However long they have waited and however many rows they have."""
    bench = Bench()
    jobs = [bench.add([5] * 4 * count) for count in batchfuls]
    for _ in range(min(before, sum(batchfuls) - 1)):
        bench.take()
    waiting = sum(job.queued > 0 for job in jobs)
    assert bench.batches_until(bench.add(newcomer)) <= waiting + 1


@scenario
async def test_newcomers_do_not_keep_a_large_request_from_its_turns():
    """Two full batches of single rows wait always; a request of ten batches gets its share."""
    bench = Bench()
    large = bench.add([50] * 4 * 10)
    taken = 0
    while large.queued:
        while bench.queue.live - large.queued < 8:
            bench.add([5])
        bench.take()
        taken += 1
    assert taken <= 10 * (UNIT + 1)


@scenario
async def test_batchful_counts_tokens_too():
    """Rows of which two fill a batch: every second one starts a turn of its own."""
    bench = Bench(BatchLimits(max_rows=32, max_tokens=200))
    bench.add([100] * 20)
    bench.take()
    single = bench.add([100])
    assert bench.batches_until(single) == 1


@scenario
async def test_rows_of_one_bucket_leave_by_arrival():
    bench = Bench(buckets=(16, 32))
    jobs = [bench.add([length]) for length in (16, 3, 9, 1, 12, 2, 20)]
    order = [jobs.index(job) for _ in range(3) for job, _ in bench.take()]
    assert order == [0, 1, 2, 3, 4, 5, 6]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "add", "take", "leave"]), LENGTHS, st.integers(0, 30)),
        max_size=60,
    ),
    st.integers(1, 3),
)
@example(
    [
        *[("add", [1] * rows, 0) for rows in (4, 4, 1)],
        ("take", [1], 0),
        ("leave", [1], 2),
        ("take", [1], 0),
    ],
    1,
)
@scenario
async def test_counts_are_exact_and_the_dead_never_outnumber_the_living(steps, kinds):
    bench, jobs = Bench(kind=None if kinds == 1 else lambda row: row.kind), []
    gone: set[tuple[Job, int]] = set()
    for verb, lengths, which in steps:
        if verb == "add":
            jobs.append(bench.add(lengths, kind=which % kinds))
        elif verb == "leave" and which < len(jobs):
            jobs[which].cancel()
        elif verb == "take" and bench.queue.live:
            living = [row for row in queued_rows(bench.queue) if not row[2].done()]
            assert bench.queue.head().row == min(living)
            batch = bench.take()
            assert not any(job.done() for job, _ in batch)
            assert not gone & set(batch)
            gone |= set(batch)
        assert bench.queue.live == sum(job.queued for job in jobs if not job.done())
        assert bench.queue.dead <= bench.queue.live
        assert len(queued_rows(bench.queue)) == bench.queue.live + bench.queue.dead
        assert bench.queue.jobs() == {job for job in jobs if job.queued and not job.done()}


def queued_rows(queue: FairQueue) -> list[QueuedRow]:
    """Every row in the queue, of ended requests too."""
    queues = [rows for queues in queue._kinds.values() for rows in queues.queues.values()]
    return list(chain.from_iterable(queues))
