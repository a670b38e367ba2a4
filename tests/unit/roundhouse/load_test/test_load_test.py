"""Load tests from the warm-up to the search, against a server on loopback."""

from __future__ import annotations

import asyncio

import pytest

from roundhouse.errors import WrongAnswerError
from roundhouse.load_test.load_test import Runner
from roundhouse.load_test.options import Arrivals, LatencyStop, Loop, Phase
from roundhouse.load_test.saturation import Outcome
from tests.unit.roundhouse.load_test.answering import Answer, serve
from tests.unit.roundhouse.load_test.phases import load_test


def run(url, on_second=lambda runner, measurement: None, **changes):
    async def drive():
        test = load_test(**{"url": url, "warm_up": 0.0, "slo_ms": None} | changes)
        runner = Runner(test=test, on_second=lambda measurement: on_second(runner, measurement))
        return await runner.run()

    return asyncio.run(drive())


def phase(loop=Loop.open, **changes):
    return Phase(**{"name": "phase 1", "loop": loop, "start": 100.0, "seconds": 1.0} | changes)


def test_every_request_of_an_open_loop_is_sent_and_answered():
    with serve() as server:
        measured = run(server.url, phases=(phase(),), arrivals=Arrivals.even)
    (found,) = measured.phases
    assert (found.intended, found.sent, found.answered, found.failed) == (100, 100, 100, 0)
    assert len(server.requests) == 100
    assert len(found.latency) == len(found.lag) == 100


def test_a_request_that_had_to_wait_has_waited_since_it_was_due():
    """The first answer takes half a second, on the only connection: what is due meanwhile waits."""
    with serve(lambda number: Answer(after_seconds=0.5 if number == 1 else 0.0)) as server:
        measured = run(server.url, phases=(phase(),), arrivals=Arrivals.even, connections=1)
    (found,) = measured.phases
    latencies = [found.latency.percentile_of_any(percent) for percent in range(1, 101)]
    assert sum(latency > 200 for latency in latencies) >= 25
    assert found.service.percentile_of_any(90) < found.latency.percentile_of_any(90)
    assert found.answered == 100


def test_a_closed_loops_users_ask_one_at_a_time():
    with serve() as server:
        measured = run(server.url, phases=(phase(Loop.closed, start=3.0),))
    (found,) = measured.phases
    assert found.answered == found.sent > 3
    assert server.connections <= 3
    assert max(second.users for second in found.seconds_seen) == 3
    assert len(found.lag) == 0


def test_phases_follow_each_other_and_requests_may_be_limited():
    with serve() as server:
        phases = (phase(), phase(seconds=30.0), phase())
        measured = run(server.url, phases=phases, max_requests=150)
    assert len(measured.phases) == 2
    assert measured.stopped == "150 requests were answered"


def test_a_latency_stop_ends_the_load():
    with serve(lambda number: Answer(after_seconds=0.1)) as server:
        stop = LatencyStop(percentile=50, milliseconds=50)
        measured = run(server.url, phases=(phase(seconds=60.0), phase()), stop=stop)
    assert measured.stopped == "p50 above 50 ms"
    assert len(measured.phases) == 1


def test_an_interrupted_load_keeps_what_was_measured():
    with serve() as server:
        measured = run(
            server.url,
            lambda runner, measurement: runner.interrupted.set(),
            phases=(phase(seconds=60.0), phase()),
        )
    assert measured.interrupted
    (found,) = measured.phases
    assert found.answered > 0 and found.failed == 0


def test_refuses_to_search_where_one_user_alone_waits_too_long():
    with serve(lambda number: Answer(after_seconds=0.05)) as server:
        measured = run(server.url, slo_ms=10.0, first_rate=100.0)
    assert measured.steps == []
    (found,) = measured.verdicts
    assert found.outcome is Outcome.missed
    assert "one user alone waits" in found.reason


def test_refuses_to_go_on_when_nothing_answers_the_warm_up():
    broken = Answer(status=500, body=b'{"error": "broken"}')
    with (
        serve(lambda number: broken) as server,
        pytest.raises(WrongAnswerError, match=r"of the warm-up failed \(HTTP 500: broken\)"),
    ):
        run(server.url, phases=(phase(),), warm_up=1.0)
