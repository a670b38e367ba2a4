"""Load tests from the warm-up to the search, against a server on loopback."""

from __future__ import annotations

import asyncio
import time

import pytest

from roundhouse.errors import WrongAnswerError
from roundhouse.load_test.bench import result_of
from roundhouse.load_test.load_test import Runner
from roundhouse.load_test.measurement import Outcome
from roundhouse.load_test.options import Loop, Phase
from roundhouse.load_test.saturation import verdict
from tests.unit.roundhouse.load_test.answering import Answer, serve
from tests.unit.roundhouse.load_test.phases import load_test, measurement, second


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
        (measurement,) = run(server.url, phases=(phase(requests=100, seconds=9.0),)).phases
    assert (measurement.offered, measurement.answered, measurement.failed) == (100, 100, 0)
    assert len(server.requests) == 100
    assert len(measurement.latency) == len(measurement.lag) == 100


def test_a_request_that_had_to_wait_has_waited_since_it_was_due():
    """The first answer takes half a second, on the only connection: what is due meanwhile waits."""
    with serve(lambda number: Answer(after_seconds=0.5 if number == 1 else 0.0)) as server:
        load = phase(requests=100, seconds=9.0)
        (measurement,) = run(server.url, phases=(load,), connections=1).phases
    latencies = [measurement.latency.percentile_of_any(percent) for percent in range(1, 101)]
    assert sum(latency > 200 for latency in latencies) >= 20
    assert measurement.service.percentile_of_any(90) < measurement.latency.percentile_of_any(90)
    assert measurement.answered == 100


def test_a_closed_loops_users_wait_for_their_answers():
    with serve() as server:
        (measurement,) = run(server.url, phases=(phase(Loop.closed, start=3.0),)).phases
    assert measurement.answered == measurement.offered > 3
    assert server.connections <= 3
    assert max(second.users for second in measurement.seconds_seen) == 3
    assert len(measurement.lag) == 0


def test_phases_follow_each_other():
    with serve() as server:
        loads = (phase(requests=20, seconds=9.0), phase(name="phase 2", requests=30, seconds=9.0))
        runner = run(server.url, phases=loads)
    assert [phase.answered for phase in runner.phases] == [20, 30]


def test_an_interrupted_load_keeps_its_measurements():
    with serve() as server:
        phases = (phase(seconds=60.0), phase())
        runner = run(server.url, lambda runner: runner.interrupted.set(), phases=phases)
    (measurement,) = runner.phases
    assert runner.interrupted.is_set() and measurement.verdict is None
    assert measurement.answered > 0 and measurement.failed == 0


def test_refuses_to_search_where_one_user_alone_waits_too_long():
    with serve(lambda number: Answer(after_seconds=0.05)) as server:
        runner = run(server.url, slo_ms=10.0)
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


def test_a_search_ends_in_its_time_with_what_was_proven():
    """A step that would not end in time is not begun; the first one always is."""
    with serve() as server:
        begin = time.monotonic()
        runner = run(server.url, slo_ms=1000.0, seconds=12.0)
        took = time.monotonic() - begin
    assert took < 60 and runner.ended == "the 12 s of the search were over"
    assert len(runner.levels) >= 3 and len(runner.steps) == 1
    best = max(level.answered_per_second for level in runner.levels)
    assert runner.steps[0].rate == pytest.approx(0.9 * best)
    result = result_of(runner, broken_off=False)
    if runner.steps[0].outcome is Outcome.held:
        assert result.headline.startswith("Proven: ")
        assert "More may hold: the 12 s of the search were over." in result.headline


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (second(30.0, service=5.0, lag=25.0), "its own p99 lag was 25.0 ms"),
        (second(machine_share=0.99), "cores were 99% busy"),
        (second(), None),
    ],
    ids=["tool", "machine", "neither"],
)
def test_the_tools_side_is_named_once_as_soon_as_it_is_the_limit(values, words):
    notes = []
    runner = Runner(test=load_test(), on_note=notes.append)
    for _ in range(2):
        found = measurement(values)
        found.verdict = verdict(found, 20.0)
        runner.note_limit(found)
    assert len(notes) == (words is not None) and all(words in note for note in notes)
