"""Texts that are tokenized at once: bounded, by turns, and given back by whoever leaves."""

import asyncio
import threading

from container.server.data_plane import TRIM_CHARACTERS, EncodingBudget
from container.server.process import MemoryTrim


class Work:
    """Encodes until it is let go, and says so."""

    def __init__(self, budget, characters, started):
        self.go_on = threading.Event()
        self.characters, self.started = characters, started
        self.task = asyncio.ensure_future(budget.run(characters, self))

    def __call__(self):
        self.started.append(self.characters)
        assert self.go_on.wait(60)
        return self.characters


async def eventually(true):
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.001)


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


def with_work(budget, *sizes):
    started = []
    return started, [Work(budget, size, started) for size in sizes]


async def test_as_many_run_as_fit_and_the_others_in_their_order():
    started, (first, second, third, fourth) = with_work(EncodingBudget(100), 60, 40, 50, 1)
    await eventually(lambda: sorted(started) == [40, 60])
    first.go_on.set()
    assert await first.task == 60
    await eventually(lambda: sorted(started) == [1, 40, 50, 60])
    for work in (second, third, fourth):
        work.go_on.set()
    assert [await work.task for work in (second, third, fourth)] == [40, 50, 1]


async def test_whoever_leaves_while_it_encodes_gives_back_when_its_thread_has_ended():
    started, (gone, waits) = with_work(EncodingBudget(100), 100, 100)
    await eventually(lambda: started == [100])
    gone.task.cancel()
    await settled()
    assert gone.task.cancelled() and started == [100]
    gone.go_on.set()
    waits.go_on.set()
    assert await waits.task == 100


async def test_whoever_leaves_while_it_waits_is_not_waited_for():
    started, (first, gone, last) = with_work(EncodingBudget(100), 60, 90, 40)
    await eventually(lambda: started == [60])
    gone.task.cancel()
    await eventually(lambda: started == [60, 40])
    for work in (first, last):
        work.go_on.set()
        await work.task


async def test_a_turn_that_comes_as_its_owner_leaves_is_handed_on():
    budget = EncodingBudget(100)
    started, (first, gone, last) = with_work(budget, 100, 100, 100)
    await eventually(lambda: started == [100])
    turns = budget._admit_waiting
    budget._admit_waiting = lambda: (turns(), gone.task.cancel())
    first.go_on.set()
    await first.task
    last.go_on.set()
    assert await asyncio.wait_for(last.task, 60) == 100
    assert gone.task.cancelled() and started == [100, 100]


def test_memory_is_returned_after_many_characters():
    async def scenario() -> list[str]:
        loop, events, trimmed = asyncio.get_running_loop(), [], asyncio.Event()

        def trim() -> None:
            events.append("trim")
            if events.count("trim") == 3:
                loop.call_soon_threadsafe(trimmed.set)

        budget = EncodingBudget(trim=MemoryTrim(1_000_000, trim, 0.3))
        for _ in range(2):
            await budget.run(TRIM_CHARACTERS, lambda: events.append("encode"))
        await trimmed.wait()
        return events

    # After each, and once more when its answers are sent.
    assert asyncio.run(scenario()) == ["encode", "trim", "encode", "trim", "trim"]
