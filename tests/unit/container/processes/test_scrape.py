"""What a scrape counts while HTTP processes come and go."""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import uvloop

from container.server.processes.supervisor import FrontSpec, Owner
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metric_values import Samples, parsed
from container.server.telemetry.metrics import counter

MUTE = (sys.executable, "-c", "import time; time.sleep(60)")
REQUESTS = ("roundhouse_requests", ("infer", "m", "200"))


def test_process_that_dies_during_a_scrape_counts_once():
    """Two processes say nothing, so that the scrape waits; one of them, which has told three
    requests before, dies meanwhile.
    """

    async def run() -> None:
        listener, log = socket.create_server(("127.0.0.1", 0)), FailureLog(bool)
        spec = FrontSpec(count=2, environment={"PATH": os.environ["PATH"]}, command=MUTE)
        owner = Owner(listener=listener, fronts=spec, samples=Samples(), log=log)
        owner.start()
        try:
            while len(owner._fronts) < 2:
                await asyncio.sleep(0)
            victim = owner._fronts[0]
            told = Samples()
            counter(told, *REQUESTS[:1], *REQUESTS[1]).add(3)
            victim.answerer.samples = told.snapshot()
            scrape = asyncio.ensure_future(owner.samples())
            while not victim.answerer._wanted:
                await asyncio.sleep(0)
            victim.process.kill()
            while owner._fronts.get(0) is victim:
                await asyncio.sleep(0)
            assert not scrape.done()
            assert parsed(await scrape)[REQUESTS] == [3]
            assert parsed(await owner.samples())[REQUESTS] == [3]
        finally:
            await owner.kill()
            log.close()

    uvloop.run(run())
