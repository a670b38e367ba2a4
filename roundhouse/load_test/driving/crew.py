"""The load processes: the one place that starts them, orders them about, and hears what they
measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from roundhouse.errors import NotReadyError
from roundhouse.load_test.driving.orders import Ended, Frames, Halt, Job, Ready, Run, Second, framed
from roundhouse.load_test.traffic import Phase

MODULE = "roundhouse.load_test.driving.worker"
START_SECONDS = 30.0
LEAD_SECONDS = 0.1
"""Between an order and a phase's begin, so that every process begins at the same moment."""
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class _Gone:
    """A load process ended by itself."""

    words: str


@dataclass(kw_only=True)
class Crew:
    """Load processes that run one phase at a time together."""

    job: Job
    processes: list[Process] = field(default_factory=list)
    readers: list[asyncio.Task[None]] = field(default_factory=list)
    heard: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    phases: int = 0

    @property
    def size(self) -> int:
        """Load processes."""
        return len(self.processes)

    async def grow(self, count: int) -> None:
        """Starts as many more. Raises NotReadyError when one does not come up."""
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                MODULE,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
            )
            self.processes.append(process)
            self.readers.append(asyncio.create_task(self._listen(process)))
            self._tell(process, self.job)
        with _within(START_SECONDS, "the load processes did not start"):
            async with asyncio.timeout(START_SECONDS):
                for _ in range(count):
                    _require(await self.heard.get(), Ready)

    async def run(self, phase: Phase, hear: Callable[[Second], None], halt: asyncio.Event) -> int:
        """Runs one phase, handing over each second of each process; requests dropped because of
        `halt`. Raises NotReadyError.
        """
        number, begin = self.phases, time.monotonic() + LEAD_SECONDS
        self.phases += 1
        for worker, process in enumerate(self.processes):
            self._tell(
                process,
                Run(number=number, phase=phase, begin=begin, worker=worker, workers=self.size),
            )
        halting = asyncio.create_task(self._halt(halt))
        ended = dropped = 0
        try:
            while ended < self.size:
                said = _require(await self.heard.get(), Second, Ended)
                if isinstance(said, Second):
                    hear(said)
                else:
                    ended, dropped = ended + 1, dropped + said.dropped
        finally:
            halting.cancel()
        return dropped

    async def close(self) -> None:
        """Ends every load process; a closed pipe is its order to go."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in self.processes:
            await process.wait()
        await asyncio.gather(*self.readers, return_exceptions=True)

    async def _halt(self, halt: asyncio.Event) -> None:
        await halt.wait()
        for process in self.processes:
            self._tell(process, Halt())

    def _tell(self, process: Process, order: object) -> None:
        assert process.stdin is not None
        process.stdin.write(framed(order))

    async def _listen(self, process: Process) -> None:
        assert process.stdout is not None and process.stderr is not None
        frames = Frames()
        while data := await process.stdout.read(CHUNK_BYTES):
            for value in frames.fed(data):
                self.heard.put_nowait(value)
        lines = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
        self.heard.put_nowait(
            _Gone(words=lines[-1] if lines else f"exit status {await process.wait()}")
        )


@asynccontextmanager
async def crew(job: Job, size: int) -> AsyncIterator[Crew]:
    """A crew that is gone at the end, whatever happens."""
    made = Crew(job=job)
    try:
        await made.grow(size)
        yield made
    finally:
        await made.close()


def _require(value: Any, *kinds: type) -> Any:
    if isinstance(value, _Gone):
        raise NotReadyError(f"A load process ended in the middle of its work: {value.words}.")
    assert isinstance(value, kinds), value
    return value


@contextlib.contextmanager
def _within(seconds: float, what: str) -> Any:
    try:
        yield
    except TimeoutError as fault:
        raise NotReadyError(f"After {seconds:g} s {what}; is this machine overloaded?") from fault
