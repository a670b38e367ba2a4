"""The counts of a scrape while HTTP workers come and go."""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import uvloop

from container.server.processes.supervisor import Supervisor, WorkerSpec
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metric_values import MetricValues, parse_snapshot
from container.server.telemetry.metrics import counter

MUTE = (sys.executable, "-c", "import time; time.sleep(60)")
REQUESTS = ("roundhouse_requests", ("infer", "m", "200"))


def test_worker_that_dies_during_a_scrape_counts_once():
    """The scrape waits for two mute workers; one, of three counted requests, dies meanwhile."""

    async def run() -> None:
        listener, log = socket.create_server(("127.0.0.1", 0)), FailureLog(bool)
        spec = WorkerSpec(count=2, environment={"PATH": os.environ["PATH"]}, command=MUTE)
        supervisor = Supervisor(
            listener=listener, workers=spec, metric_values=MetricValues(), log=log
        )
        supervisor.start()
        try:
            while len(supervisor._workers) < 2:
                await asyncio.sleep(0)
            victim = supervisor._workers[0]
            values = MetricValues()
            counter(values, REQUESTS[0], *REQUESTS[1]).add(3)
            victim.session.metric_values = values.snapshot()
            scrape = asyncio.ensure_future(supervisor.metric_values())
            while not victim.session._wanted:
                await asyncio.sleep(0)
            victim.process.kill()
            while supervisor._workers.get(0) is victim:
                await asyncio.sleep(0)
            assert not scrape.done()
            assert parse_snapshot(await scrape)[REQUESTS] == [3]
            assert parse_snapshot(await supervisor.metric_values())[REQUESTS] == [3]
        finally:
            await supervisor.kill()
            log.close()

    uvloop.run(run())
