"""Load tests with real load processes, against a server on loopback."""

from __future__ import annotations

import asyncio

import pytest

from roundhouse.errors import NotReadyError, WrongAnswerError
from roundhouse.load_test.conducting import Conductor
from roundhouse.load_test.driving.crew import Crew
from roundhouse.load_test.judgement.verdict import Outcome
from roundhouse.load_test.requests.destination import Destination
from roundhouse.load_test.traffic import Arrivals, LatencyStop, Loop, Phase
from tests.unit.roundhouse.load_test.answering import Answer, served
from tests.unit.roundhouse.load_test.seconds import asked


def conducted(url, progress=lambda conductor, measured: None, **changes):
    async def run():
        order = asked(
            **{"destination": Destination(url=url), "warm_up_seconds": 0.0, "slo_ms": None}
            | changes
        )
        conductor = Conductor(asked=order, progress=lambda measured: progress(conductor, measured))
        return await conductor.conduct()

    return asyncio.run(run())


def phase(loop=Loop.open, **changes):
    return Phase(**{"name": "phase 1", "loop": loop, "start": 100.0, "seconds": 1.0} | changes)


def test_every_request_of_an_open_loop_is_sent_and_answered():
    with served() as server:
        done = conducted(server.url, phases=(phase(),), arrivals=Arrivals.even, workers=2)
    (found,) = done.phases
    assert (found.intended, found.sent, found.answered, found.failed) == (100, 100, 100, 0)
    assert len(server.requests) == 100
    assert len(found.latency) == len(found.lag) == 100
    assert done.workers == 2


def test_a_request_that_had_to_wait_has_waited_since_it_was_due():
    """The first answer takes half a second, on the only connection: what was due meanwhile waits,
    and says so.
    """
    with served(lambda number: Answer(after_seconds=0.5 if number == 1 else 0.0)) as server:
        done = conducted(server.url, phases=(phase(),), arrivals=Arrivals.even, most_connections=1)
    (found,) = done.phases
    slow = [
        value for value in (found.latency.unproven(each) for each in range(1, 101)) if value > 200
    ]
    assert len(slow) >= 25
    assert found.service.unproven(90) < found.latency.unproven(90)
    assert found.answered == 100


def test_a_closed_loops_users_ask_one_at_a_time():
    with served() as server:
        done = conducted(server.url, phases=(phase(Loop.closed, start=3.0),))
    (found,) = done.phases
    assert found.answered == found.sent > 3
    assert server.connections <= 3
    assert max(each.users for each in found.ordered) == 3
    assert len(found.lag) == 0


def test_phases_follow_each_other_and_requests_may_be_limited():
    with served() as server:
        done = conducted(
            server.url, phases=(phase(), phase(seconds=30.0), phase()), most_requests=150
        )
    assert len(done.phases) == 2
    assert done.stopped == "150 requests were answered"


def test_a_latency_stop_ends_the_load():
    with served(lambda number: Answer(after_seconds=0.1)) as server:
        stop = LatencyStop(percentile=50, milliseconds=50)
        done = conducted(server.url, phases=(phase(seconds=60.0), phase()), stop=stop)
    assert done.stopped == "p50 above 50 ms"
    assert len(done.phases) == 1


def test_an_interrupted_load_keeps_what_was_measured():
    def interrupt(conductor, measured):
        conductor.interrupted.set()

    with served() as server:
        done = conducted(server.url, interrupt, phases=(phase(seconds=60.0), phase()))
    assert done.broken_off
    assert len(done.phases) == 1
    assert done.phases[0].answered > 0
    assert done.phases[0].failed == 0


def test_refuses_to_search_where_one_user_alone_waits_too_long():
    with served(lambda number: Answer(after_seconds=0.05)) as server:
        done = conducted(server.url, slo_ms=10.0, first_rate=100.0)
    assert done.tried == []
    (found,) = done.verdicts
    assert found.outcome is Outcome.missed
    assert "one user alone waits" in found.reason


def test_refuses_to_go_on_when_nothing_answers_the_warm_up():
    with (
        served(lambda number: Answer(status=500, body=b'{"error": "broken"}')) as server,
        pytest.raises(WrongAnswerError) as raised,
    ):
        conducted(server.url, phases=(phase(),), warm_up_seconds=1.0)
    assert "requests of the warm-up failed (HTTP 500: broken)" in str(raised.value)


def test_refuses_to_go_on_without_a_load_process():
    async def run(url):
        order = asked(destination=Destination(url=url), slo_ms=None)
        conductor = Conductor(asked=order, progress=lambda measured: None)
        crew = Crew(job=conductor._job())
        await crew.grow(1)
        try:
            crew.processes[0].kill()
            await crew.run(phase(seconds=60.0), lambda said: None, asyncio.Event())
        finally:
            await crew.close()

    with (
        served() as server,
        pytest.raises(NotReadyError, match="A load process ended in the middle"),
    ):
        asyncio.run(run(server.url))
