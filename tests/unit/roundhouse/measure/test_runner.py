"""Load tests from the warm-up to the search and to the knee, against a server on loopback."""

from __future__ import annotations

import asyncio
import time

import pytest

from roundhouse.measure import runner as module
from roundhouse.measure.bench import result_of
from roundhouse.measure.compare.run import KneeRunner
from roundhouse.measure.measurement import Outcome, percentile
from roundhouse.measure.options import Loop, Phase
from roundhouse.measure.runner import EngineRunner
from roundhouse.measure.slo import Step, engine_slo, verdict
from tests.unit.roundhouse.measure.answering import Answer, serve
from tests.unit.roundhouse.measure.phases import load_test, measurement, second


def run(url, step_seconds=10.0, **changes):
    test = load_test(**{"url": url, "warm_up": 0.0, "slo_ms": None} | changes)

    async def drive():
        runner = EngineRunner(test=test, step_seconds=step_seconds)
        await runner.run()
        return runner

    return asyncio.run(drive())


def phase(loop=Loop.open, **changes):
    return Phase(**{"name": "phase 1", "loop": loop, "start": 100.0, "seconds": 1.0} | changes)


def test_a_request_that_had_to_wait_has_waited_since_it_was_due():
    """The first answer takes half a second, on the only connection: what is due meanwhile waits."""
    with serve(lambda number: Answer(after_seconds=0.5 if number == 2 else 0.0)) as server:
        (measurement,) = run(server.url, phases=(phase(),), connections=1).phases
    assert sum(latency > 200 for latency in measurement.latency) >= 20
    assert percentile(measurement.service, 90) < percentile(measurement.latency, 90)
    assert measurement.answered == measurement.offered > 50


def test_a_closed_loops_users_wait_for_their_answers():
    with serve() as server:
        (measurement,) = run(server.url, phases=(phase(Loop.closed, start=3.0),)).phases
    assert measurement.answered == measurement.offered > 3
    assert server.connections <= 4, "those of the users, and the first request's"
    assert max(second.in_flight for second in measurement.seconds_seen) <= 3
    assert len(measurement.lag) == 0


def test_a_search_ends_in_its_time_with_what_was_proven(monkeypatch):
    """A step that would not end in time is not begun; the first one always is."""
    monkeypatch.setattr(module, "LEVEL_SECONDS", 0.5)
    with serve() as server:
        begin = time.monotonic()
        runner = run(server.url, slo_ms=1000.0, seconds=3.0, step_seconds=2.0)
        took = time.monotonic() - begin
    assert took < 60 and runner.ended == "the 3 s of the search were over"
    assert len(runner.levels) >= 3 and len(runner.steps) == 1
    best = max(level.answered_per_second for level in runner.levels)
    assert runner.steps[0].rate == pytest.approx(0.9 * best)
    result = result_of(runner, broken_off=False)
    if runner.steps[0].outcome is Outcome.held:
        assert result.headline.startswith("Proven: ")
        assert "More may hold: the 3 s of the search were over." in result.headline


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
    runner = EngineRunner(test=load_test(), on_note=notes.append)
    for _ in range(2):
        found = measurement(values)
        found.verdict = verdict(found, engine_slo(20.0))
        runner.note_limit(found)
    assert len(notes) == (words is not None) and all(words in note for note in notes)


@pytest.mark.parametrize(
    ("shares", "outcomes", "is_over"),
    [
        ((0.99, 0.98, 0.97), "mmm", True),
        ((0.99, 0.98), "mm", False),
        ((0.99, 0.5, 0.97), "mmm", False),
        ((0.99, 0.98, 0.97), "hmm", False),
    ],
    ids=["busy at every load", "two loads", "once idle", "one load held"],
)
def test_a_search_on_a_busy_machine_ends_where_no_load_holds(shares, outcomes, is_over):
    runner = EngineRunner(test=load_test())
    for number, (share, outcome) in enumerate(zip(shares, outcomes, strict=True)):
        runner.phases.append(measurement(second(machine_share=share)))
        held = Outcome.held if outcome == "h" else Outcome.missed
        runner.steps.append(Step(rate=1000 / 2**number, outcome=held))
    assert (runner.lasting_limit() is not None) == is_over


def search(url, slo_ms):
    test = load_test(url=url, warm_up=0.0, slo_ms=slo_ms, connections=64)
    runner = KneeRunner(test=test, step_seconds=1.0, longest_step_seconds=2.0)
    asyncio.run(runner.run())
    return runner, runner.knee()


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(module, "LEVEL_SECONDS", 0.5)
    monkeypatch.setattr(module, "LEVEL_USERS", (1, 4))


def test_a_rate_that_was_held_is_the_knee(short):
    with serve(lambda number: Answer(after_seconds=0.02)) as server:
        _, found = search(server.url, 500.0)
    assert found.rate is not None and found.p50_ms is not None and found.p50_ms >= 20


def test_a_server_slower_than_the_slo_holds_nothing_and_says_why(short):
    with serve(lambda number: Answer(after_seconds=0.1)) as server:
        runner, found = search(server.url, 50.0)
    assert found.rate is None and "one user alone waits" in found.reason
    (phase,) = runner.phases
    assert runner.steps == [] and phase.verdict.outcome is Outcome.missed


def test_errors_end_the_search(short):
    with serve(lambda number: Answer(status=503 if number > 20 else 200)) as server:
        _, found = search(server.url, 500.0)
    assert found.rate is None and "errors" in found.reason


@pytest.mark.parametrize(
    ("milliseconds", "outcome"), [(5.0, Outcome.held), (19.9, Outcome.held), (21.0, Outcome.missed)]
)
def test_a_comparison_takes_p95_where_answers_are_too_few_for_p99(milliseconds, outcome):
    runner = KneeRunner(test=load_test())
    phase = measurement(second(milliseconds, count=400), rate=400.0)
    assert runner.judge(phase, runner.test.slo).outcome is outcome
    assert EngineRunner(test=load_test()).judge(phase, runner.test.slo).outcome is not Outcome.held
