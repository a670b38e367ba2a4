"""Deadlines: each rings once, none after its request is over, and many requests do not pile up."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from container.server.batching.deadlines import Deadlines
from container.server.batching.job import Job
from tests.unit.container.batching.bench import Row, run, settle


class Watch:
    """Deadlines that end the requests they find, and who those were."""

    def __init__(self) -> None:
        self.passed: list[int] = []
        self.deadlines = Deadlines(self.ring)
        self.loop = asyncio.get_running_loop()

    def ring(self, job: Job) -> None:
        self.passed.append(job.base)
        job.cancel()

    def add(self, number: int, deadline: float) -> Job:
        forget = lambda job, reason: self.deadlines.forget(job)
        job = Job([Row((number, 0), 1)], number, 0.0, forget, self.loop)
        self.deadlines.add(deadline, job)
        return job


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=20), st.integers(0, 10))
def test_deadlines_pass_in_order_for_those_that_wait(requests, until):
    async def scenario() -> None:
        watch, now = Watch(), asyncio.get_running_loop().time()
        for number, (seconds, over) in enumerate(requests):
            job = watch.add(number, now + seconds)
            if over:
                job.cancel()
        for _ in range(until):
            watch.loop.now += 1.0
            await settle()
        due = [
            (seconds, number)
            for number, (seconds, over) in enumerate(requests)
            if seconds <= until and not over
        ]
        assert watch.passed == [number for _, number in sorted(due)]
        watch.deadlines.close()

    run(scenario())


def test_deadlines_of_finished_requests_are_forgotten():
    async def scenario() -> None:
        watch, now = Watch(), asyncio.get_running_loop().time()
        waits = watch.add(-1, now + 5)
        for number in range(1000):
            watch.add(number, now + 60).cancel()
            assert len(watch.deadlines) <= 2 * 2 + 64
        watch.loop.now += 5
        await settle()
        assert waits.done()
        watch.deadlines.close()

    run(scenario())
