"""Load tests from the warm-up to the search, against a server on loopback."""

from __future__ import annotations

import asyncio

import pytest

from roundhouse.errors import WrongAnswerError
from roundhouse.load_test.load_test import Runner
from roundhouse.load_test.measurement import Outcome
from roundhouse.load_test.options import Arrivals, LatencyStop, Loop, Phase
from tests.unit.roundhouse.load_test.answering import Answer, serve
from tests.unit.roundhouse.load_test.phases import load_test


def run(url, on_second=lambda runner: None, **changes):
    test = load_test(**{"url": url, "warm_up": 0.0, "slo_ms": None} | changes)

    async def drive():
        runner = Runner(test=test, on_second=lambda measurement: on_second(runner))
        await runner.run()
        return runner

    return asyncio.run(drive())


def phase(loop=Loop.open, **changes):
    return Phase(**{"name": "phase 1", "loop": loop, "start": 100.0, "seconds": 1.0} | changes)


def test_every_request_of_an_open_loop_is_sent_and_answered():
    with serve() as server:
        (measurement,) = run(server.url, phases=(phase(),), arrivals=Arrivals.even).phases
    assert (measurement.offered, measurement.answered, measurement.failed) == (100, 100, 0)
    assert len(server.requests) == 100
    assert len(measurement.latency) == len(measurement.lag) == 100


def test_a_request_that_had_to_wait_has_waited_since_it_was_due():
    """The first answer takes half a second, on the only connection: what is due meanwhile waits."""
    with serve(lambda number: Answer(after_seconds=0.5 if number == 1 else 0.0)) as server:
        options = {"arrivals": Arrivals.even, "connections": 1}
        (measurement,) = run(server.url, phases=(phase(),), **options).phases
    latencies = [measurement.latency.percentile_of_any(percent) for percent in range(1, 101)]
    assert sum(latency > 200 for latency in latencies) >= 25
    assert measurement.service.percentile_of_any(90) < measurement.latency.percentile_of_any(90)
    assert measurement.answered == 100


def test_a_closed_loops_users_wait_for_their_answers():
    with serve() as server:
        (measurement,) = run(server.url, phases=(phase(Loop.closed, start=3.0),)).phases
    assert measurement.answered == measurement.offered > 3
    assert server.connections <= 3
    assert max(second.users for second in measurement.seconds_seen) == 3
    assert len(measurement.lag) == 0


def test_phases_follow_each_other_and_requests_may_be_limited():
    with serve() as server:
        phases = (phase(), phase(seconds=30.0), phase())
        runner = run(server.url, phases=phases, max_requests=150)
    assert len(runner.phases) == 2
    assert runner.stopped == "150 requests were answered"


def test_a_latency_stop_ends_the_load():
    with serve(lambda number: Answer(after_seconds=0.1)) as server:
        stop = LatencyStop(percentile=50, milliseconds=50)
        runner = run(server.url, phases=(phase(seconds=60.0), phase()), stop=stop)
    assert runner.stopped == "p50 above 50 ms"
    assert len(runner.phases) == 1


def test_an_interrupted_load_keeps_its_measurements():
    with serve() as server:
        phases = (phase(seconds=60.0), phase())
        runner = run(server.url, lambda runner: runner.interrupted.set(), phases=phases)
    (measurement,) = runner.phases
    assert runner.interrupted.is_set() and runner.stopped is None
    assert measurement.answered > 0 and measurement.failed == 0


def test_refuses_to_search_where_one_user_alone_waits_too_long():
    with serve(lambda number: Answer(after_seconds=0.05)) as server:
        runner = run(server.url, slo_ms=10.0, first_rate=100.0)
    (measurement,) = runner.phases
    assert runner.steps == [] and measurement.verdict.outcome is Outcome.missed
    assert "one user alone waits" in measurement.verdict.reason


def test_refuses_to_go_on_when_nothing_answers_the_warm_up():
    broken = Answer(status=500, body=b'{"error": "broken"}')
    with (
        serve(lambda number: broken) as server,
        pytest.raises(WrongAnswerError, match=r"of the warm-up failed \(HTTP 500: broken\)"),
    ):
        run(server.url, phases=(phase(),), warm_up=1.0)
