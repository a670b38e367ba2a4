"""One load process: `python -m roundhouse.load_test.driving.worker`, ordered over standard input,
reporting over standard output.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import uvloop

from roundhouse.load_test.driving.alarm import Alarm
from roundhouse.load_test.driving.closed_loop import ClosedLoop
from roundhouse.load_test.driving.loop import LoadLoop
from roundhouse.load_test.driving.open_loop import OpenLoop
from roundhouse.load_test.driving.orders import Ended, Frames, Halt, Job, Ready, Run, framed
from roundhouse.load_test.driving.sender import Sender
from roundhouse.load_test.driving.tally import Tally
from roundhouse.load_test.requests.destination import Requests
from roundhouse.load_test.requests.signing import signer
from roundhouse.load_test.traffic import Loop

TICK_SECONDS = 0.05


@dataclass(kw_only=True)
class Worker:
    """Runs phases one after the other; connections stay from one to the next."""

    job: Job
    tls: ssl.SSLContext | None
    requests: Requests
    out: int
    sender: Sender | None = None
    halt: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, value: object) -> None:
        """One frame to the command."""
        data = framed(value)
        while data:
            data = data[os.write(self.out, data) :]

    async def run(self, run: Run) -> None:
        """One phase: load, then as long as the drain allows for what is under way."""
        self.halt.clear()
        tally = Tally(run.number, run.worker, self.job.expected_interval_seconds)
        sender = self._sender(tally, run.workers)
        alarm = Alarm(asyncio.get_running_loop(), lambda: load.rung())
        load = self._load(sender, run, alarm)
        load.start()
        second, dropped = 0, 0
        try:
            while not (load.finished and sender.pending == 0):
                await self._tick()
                now = time.monotonic()
                sender.expire(now)
                if self.halt.is_set():
                    load.stop()
                    dropped = sender.give_up_all(None)
                elif now > run.begin + run.phase.seconds + self.job.drain_seconds:
                    sender.give_up_all(
                        f"no answer within {self.job.drain_seconds:g} s of the phase's end"
                    )
                if now >= run.begin + second + 1:
                    self._report(tally, second, load, sender)
                    second = int(now - run.begin)
        finally:
            alarm.close()
        self._report(tally, second, load, sender)
        sender.halted = False
        self.say(Ended(number=run.number, dropped=dropped))

    def _report(self, tally: Tally, second: int, load: LoadLoop, sender: Sender) -> None:
        waiting = len(sender.waiting)
        self.say(
            tally.closed_second(
                second, users=load.users, in_flight=sender.in_flight, waiting=waiting
            )
        )

    async def _tick(self) -> None:
        try:
            async with asyncio.timeout(TICK_SECONDS):
                await self.halt.wait()
        except TimeoutError:
            pass

    def _sender(self, tally: Tally, workers: int) -> Sender:
        most = max(1, self.job.most_connections // workers)
        if self.sender is None:
            self.sender = Sender(
                destination=self.job.destination,
                requests=self.requests,
                tally=tally,
                most_connections=most,
                timeout_seconds=self.job.timeout_seconds,
                tls=self.tls,
            )
        self.sender.tally, self.sender.most_connections = tally, most
        return self.sender

    def _load(self, sender: Sender, run: Run, alarm: Alarm) -> LoadLoop:
        if run.phase.loop is Loop.open:
            return OpenLoop(sender, run, alarm, self.job.arrivals, self.job.seed)
        return ClosedLoop(sender, run, alarm)


class _Orders(asyncio.Protocol):
    """Orders as they come over standard input."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[Any] = asyncio.Queue()
        self._frames = Frames()
        self.worker: Worker | None = None

    def data_received(self, data: bytes) -> None:
        for order in self._frames.fed(data):
            if isinstance(order, Halt) and self.worker is not None:
                self.worker.halt.set()
            else:
                self.coming.put_nowait(order)

    def connection_lost(self, exc: Exception | None) -> None:
        # The command is gone: nobody would read a word.
        os._exit(0)


async def work(out: int) -> None:
    """Reads the job, then runs phases until the command closes the pipe."""
    loop, orders = asyncio.get_running_loop(), _Orders()
    await loop.connect_read_pipe(lambda: orders, sys.stdin)
    job: Job = await orders.coming.get()
    requests = Requests(
        job.destination, job.bodies, job.seed + os.getpid(), signer(job.destination)
    )
    tls = ssl.create_default_context() if job.destination.tls else None
    worker = orders.worker = Worker(job=job, tls=tls, requests=requests, out=out)
    worker.say(Ready())
    while True:
        await worker.run(await orders.coming.get())


def main() -> None:
    """Nothing but frames goes to standard output; Ctrl-C is the command's to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.dup(1)
    os.dup2(2, 1)
    uvloop.run(work(out))


if __name__ == "__main__":
    main()
