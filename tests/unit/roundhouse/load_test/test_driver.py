"""The load driver against a real server on loopback."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundhouse.load_test.destination import Destination, Requests
from roundhouse.load_test.driver import Timer, arrival_moments, open_driver, user_moments
from roundhouse.load_test.inputs import Body
from roundhouse.load_test.measurement import Measurement
from roundhouse.load_test.options import Arrivals, Loop, Phase
from tests.unit.roundhouse.load_test.answering import Answer, serve

BODY = Body(data=b"{}", content_type="application/json", rows=1)


def phase(**changes) -> Phase:
    fields = {"name": "p", "loop": Loop.open, "start": 100.0, "seconds": 10.0}
    return Phase(**fields | changes)


def run(url, phase, *, repeat=1, connections=4, timeout_seconds=10.0, drain_seconds=10.0):
    """Run a phase, `repeat` times over the same connections, and return the last measurement."""

    async def drive():
        destination = Destination(url=url)
        async with open_driver(
            destination,
            Requests(destination, [BODY], 1, None),
            arrivals=Arrivals.even,
            seed=1,
            connections=connections,
            timeout_seconds=timeout_seconds,
            drain_seconds=drain_seconds,
        ) as driver:
            for _ in range(repeat):
                measurement = Measurement(phase=phase)
                await driver.run(measurement, asyncio.Event(), lambda: None)
        return measurement

    return asyncio.run(drive())


def burst(count) -> Phase:
    return phase(start=count / 0.1, seconds=0.1)


def test_no_more_connections_than_allowed_and_everything_is_answered():
    with serve(lambda number: Answer(after_seconds=0.01)) as server:
        found = run(server.url, burst(50), connections=3)
    assert found.answered == found.sent == 50
    assert server.connections == 3


def test_connections_stay_open_from_phase_to_phase():
    with serve() as server:
        found = run(server.url, burst(5), repeat=3, connections=1)
    assert (found.answered, server.connections) == (5, 1)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            Answer(status=503, body=b'{"error": "The queue is full."}'),
            "HTTP 503: The queue is full.",
        ),
        (
            Answer(
                status=424,
                body=b'{"ErrorCode": "x", "Message": "Received", "OriginalStatusCode": 400, '
                b'"OriginalMessage": "{\\"error\\": \\"no\\"}"}',
            ),
            "HTTP 400: no",
        ),
        (Answer(silent=True, close=True), "connection lost: closed by the server"),
        (Answer(raw=b"what?\r\n\r\n"), "the answer is no HTTP"),
    ],
    ids=["refusal", "behind SageMaker", "closed", "no HTTP"],
)
def test_a_failed_request_is_an_error_with_its_reason(answer, reason):
    with serve(lambda number: answer) as server:
        found = run(server.url, burst(3), connections=1)
    assert sum(found.errors.values()) == 3
    assert next(iter(found.errors)).startswith(reason)
    assert found.answered == 0


def test_a_request_over_a_connection_that_the_server_closed_is_sent_again():
    with serve(lambda number: Answer(close=number == 1)) as server:
        found = run(server.url, burst(1), repeat=3, connections=1)
    assert (found.answered, dict(found.errors)) == (1, {})
    assert server.connections == 2


def test_a_server_that_says_close_is_left():
    with serve(lambda number: Answer(headers="Connection: close\r\n", close=True)) as server:
        found = run(server.url, burst(5), connections=1)
    assert (found.answered, dict(found.errors), server.connections) == (5, {}, 5)


def test_an_answer_that_does_not_come_is_given_up_and_its_wait_counts():
    with serve(lambda number: Answer(silent=True)) as server:
        found = run(server.url, burst(2), timeout_seconds=0.05)
    assert found.errors == {"no answer within 0.05 s": 2}
    assert len(found.latency) == 2


def test_what_is_unanswered_after_the_drain_counts_whether_it_was_sent_or_waits():
    with serve(lambda number: Answer(silent=True)) as server:
        found = run(server.url, burst(4), connections=1, drain_seconds=0.05)
    assert found.errors == {"no answer within 0.05 s of the phase's end": 4}
    assert len(found.latency) == 4


def test_without_a_server_every_request_is_an_error():
    with serve() as server:
        url = server.url
    found = run(url, burst(3))
    assert sum(found.errors.values()) == 3
    assert all("no connection" in reason for reason in found.errors)


@pytest.mark.parametrize("later", [-1.0, 0.01])
def test_a_timer_never_wakes_early(later):
    async def sleep():
        timer, moment = Timer(), time.monotonic() + later
        await asyncio.wait_for(timer.sleep_until(moment), 10)
        timer.close()
        return time.monotonic() - moment

    assert asyncio.run(sleep()) >= 0


def test_even_arrivals_are_even():
    found = list(arrival_moments(phase(), Arrivals.even, "1"))
    assert found == pytest.approx([(number + 0.5) / 100 for number in range(1000)])


@given(st.integers(0, 1000))
def test_poisson_arrivals_have_the_rate_and_stay_in_the_phase(seed):
    found = list(arrival_moments(phase(), Arrivals.poisson, str(seed)))
    assert 1000 - 6 * 1000**0.5 < len(found) < 1000 + 6 * 1000**0.5
    assert all(0 < moment < 10 for moment in found)


def test_poisson_arrivals_vary_and_follow_the_seed():
    found = list(arrival_moments(phase(), Arrivals.poisson, "1"))
    assert found == list(arrival_moments(phase(), Arrivals.poisson, "1"))
    assert found != list(arrival_moments(phase(), Arrivals.poisson, "2"))
    gaps = [after - before for before, after in itertools.pairwise(found)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert 0.8 < spread / mean < 1.2


def test_a_ramp_sends_more_in_its_later_half():
    found = list(arrival_moments(phase(start=0.0, spawn=600.0), Arrivals.even, "1"))
    assert len(found) == 500
    assert sum(moment < 5 for moment in found) == 125


def test_users_start_at_their_moments():
    found = list(user_moments(phase(loop=Loop.closed, start=3.0, spawn=60.0)))
    assert found == [0, 0, 0, *range(1, 10)]
