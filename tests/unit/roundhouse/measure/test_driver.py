"""The load driver against a real server on loopback."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from roundhouse.errors import AwsError
from roundhouse.measure.destination import Destination, Requests
from roundhouse.measure.driver import Driver, Timer, arrival_moments, machine_clock, open_driver
from roundhouse.measure.inputs import Body
from roundhouse.measure.measurement import Measurement
from roundhouse.measure.options import ClientOptions, Loop, Phase
from tests.unit.roundhouse.measure.answering import Answer, serve

BODY = Body(b"{}", "application/json")


def phase(**changes) -> Phase:
    fields = {"name": "p", "loop": Loop.open, "start": 100.0, "seconds": 10.0}
    return Phase(**fields | changes)


def burst(count) -> Phase:
    """Return a phase in which so many requests are due, by its name, which arrivals follow."""
    names = (f"p{number}" for number in itertools.count())
    phases = (phase(name=name, start=count / 0.05, seconds=0.05) for name in names)
    return next(
        item for item in phases if len(list(arrival_moments(item, f"1 {item.name}"))) == count
    )


def run(url, phase, *, repeat=1, drain_seconds=10.0, sign=None, **options):
    """Run a phase, `repeat` times over the same connections, and return the last measurement."""
    fields = {"connections": 4, "timeout": 10.0} | options

    async def drive():
        to = Destination(url=url)
        requests = Requests(to, [BODY], 1, sign)
        client = ClientOptions(**fields)
        async with open_driver(Driver, to, requests, client, drain_seconds) as driver:
            for _ in range(repeat):
                measurement = Measurement(phase=phase)
                await driver.run(measurement, asyncio.Event(), lambda: None)
        return measurement

    return asyncio.run(drive())


def test_no_more_connections_than_allowed_and_everything_is_answered():
    with serve(lambda number: Answer(after_seconds=0.01)) as server:
        measurement = run(server.url, burst(50), connections=3)
    assert measurement.answered == measurement.offered == 50
    assert server.connections == 3


BEHIND_SAGEMAKER = (
    b'{"ErrorCode": "x", "Message": "Received", "OriginalStatusCode": 400, '
    b'"OriginalMessage": "{\\"error\\": \\"no\\"}"}'
)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(status=503, body=b'{"error": "It is full."}'), "HTTP 503: It is full."),
        (Answer(status=424, body=BEHIND_SAGEMAKER), "HTTP 400: no"),
        (Answer(silent=True, close=True), "connection lost: closed by the server"),
        (Answer(raw=b"what?\r\n\r\n"), "the answer is no HTTP"),
    ],
    ids=["refusal", "behind SageMaker", "closed", "no HTTP"],
)
def test_a_failed_request_is_an_error_with_its_reason(answer, reason):
    with serve(lambda number: answer) as server:
        measurement = run(server.url, burst(3), connections=1)
    assert sum(measurement.errors.values()) == 3
    assert next(iter(measurement.errors)).startswith(reason)
    assert measurement.answered == 0


def test_a_request_that_cannot_be_signed_is_an_error_with_its_reason():
    def sign(body):
        raise AwsError("Signing the requests: the session has expired.")

    measurement = run("http://127.0.0.1:9/", burst(2), sign=sign)
    assert measurement.errors == {"Signing the requests: the session has expired.": 2}


def test_an_error_of_ours_ends_the_load():
    def sign(body):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run("http://127.0.0.1:9/", phase(seconds=60.0), sign=sign)


def test_a_request_over_a_connection_that_the_server_closed_is_sent_again():
    with serve(lambda number: Answer(close=number == 1)) as server:
        measurement = run(server.url, burst(1), repeat=3, connections=1)
    assert (measurement.answered, dict(measurement.errors)) == (1, {})
    assert server.connections == 2


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"timeout": 0.05, "drain_seconds": 5.0}, "no answer within 0.05 s"),
        ({"connections": 1, "drain_seconds": 0.05}, "no answer within 0.05 s of the phase's end"),
    ],
    ids=["timeout", "after the drain, sent or waiting"],
)
def test_an_answer_that_does_not_come_is_an_error_and_its_wait_counts(limits, reason):
    with serve(lambda number: Answer(silent=True)) as server:
        measurement = run(server.url, burst(4), **limits)
    assert measurement.errors == {reason: 4}
    assert len(measurement.latency) == 4


class LateDriver(Driver):
    """Times out at the moment at which it is cancelled, as aiohttp's timers can."""

    async def post(self, data, headers):
        try:
            return await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise TimeoutError from None


def test_a_timeout_at_the_moment_of_the_end_keeps_no_phase_alive():
    async def drive():
        to = Destination(url="http://127.0.0.1:9/")
        options = ClientOptions(connections=2)
        requests, url = Requests(to, [BODY], 1, None), URL(to.url)
        driver = LateDriver(
            session=None, url=url, requests=requests, options=options, drain_seconds=0.05
        )
        measurement = Measurement(phase=burst(2))
        await asyncio.wait_for(driver.run(measurement, asyncio.Event(), lambda: None), 20)
        return measurement

    assert sum(asyncio.run(drive()).errors.values()) == 2


@pytest.mark.parametrize("later", [-1.0, 0.01])
def test_a_timer_never_wakes_early(later):
    async def sleep():
        timer, moment = Timer(), time.monotonic() + later
        await asyncio.wait_for(timer.sleep_until(moment), 10)
        timer.close()
        return time.monotonic() - moment

    assert asyncio.run(sleep()) >= 0


@given(st.integers(0, 1000))
def test_poisson_arrivals_have_the_rate_and_stay_in_the_phase(seed):
    moments = list(arrival_moments(phase(), str(seed)))
    assert 1000 - 6 * 1000**0.5 < len(moments) < 1000 + 6 * 1000**0.5
    assert all(0 < moment < 10 for moment in moments)


def test_the_machines_clock_goes_on_and_is_never_more_busy_than_it_is_there():
    busy, whole = machine_clock()
    assert 0 <= busy <= whole
