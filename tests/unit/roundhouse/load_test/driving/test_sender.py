"""Requests over kept-alive connections, against a real server on loopback."""

from __future__ import annotations

import asyncio
import time

import pytest

from roundhouse.load_test.driving.alarm import Alarm
from roundhouse.load_test.driving.sender import Sender
from roundhouse.load_test.driving.tally import Tally
from roundhouse.load_test.requests.destination import Body, Destination, Requests
from tests.unit.roundhouse.load_test.answering import Answer, served

BODY = Body(data=b"{}", content_type="application/json", rows=1)


def sent(url, count, *, most_connections=4, timeout_seconds=10.0, one_by_one=False, give_up=None):
    """Submits requests and waits until nothing is pending; the second measured, and the sender."""

    async def run():
        to = Destination(url=url)
        sender = Sender(
            destination=to,
            requests=Requests(to, [BODY], 1),
            tally=Tally(0, 0, None),
            most_connections=most_connections,
            timeout_seconds=timeout_seconds,
        )
        for number in range(count):
            over = asyncio.Event()
            sender.submit(time.monotonic(), lambda answered, over=over: over.set())
            if one_by_one:
                await over.wait()
            elif number == 0 and give_up is not None:
                await give_up(sender)
        while sender.pending:
            await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.01)
            sender.expire(time.monotonic())
        found = sender.tally.closed_second(0, users=0, in_flight=sender.in_flight, waiting=0)
        sender.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        return found, sender

    return asyncio.run(run())


def test_one_connection_serves_requests_that_follow_each_other():
    with served() as server:
        found, _ = sent(server.url, 20, one_by_one=True)
    assert (found.answered, found.faults, server.connections) == (20, {}, 1)


def test_no_more_connections_than_allowed_and_everything_is_answered():
    with served() as server:
        found, _ = sent(server.url, 50, most_connections=3)
    assert found.answered == found.sent == 50
    assert server.connections == 3


def test_a_refusal_is_counted_with_its_words():
    with served(
        lambda number: Answer(status=503, body=b'{"error": "The queue is full."}')
    ) as server:
        found, _ = sent(server.url, 3)
    assert found.faults == {"HTTP 503: The queue is full.": 3}
    assert (found.answered, found.latency) == (0, b"")


def test_behind_sagemaker_the_containers_words_are_counted():
    body = b'{"ErrorCode": "x", "Message": "Received", "OriginalStatusCode": 400, "OriginalMessage": "{\\"error\\": \\"no\\"}"}'
    with served(lambda number: Answer(status=424, body=body)) as server:
        found, _ = sent(server.url, 1)
    assert found.faults == {"HTTP 400: no": 1}


def test_a_request_that_meets_an_idle_connections_end_is_sent_again():
    with served(lambda number: Answer(close=number == 1)) as server:
        found, _ = sent(server.url, 3, one_by_one=True, most_connections=1)
    assert (found.answered, found.faults) == (3, {})
    assert server.connections == 2


def test_a_server_that_says_close_is_left():
    with served(lambda number: Answer(headers="Connection: close\r\n", close=True)) as server:
        found, _ = sent(server.url, 5, one_by_one=True)
    assert (found.answered, found.faults, server.connections) == (5, {}, 5)


def test_a_connection_lost_before_any_answer_is_a_fault():
    with served(lambda number: Answer(silent=True, close=True)) as server:
        found, _ = sent(server.url, 1)
    assert list(found.faults) == ["connection lost: closed by the server"]


def test_an_answer_that_is_no_http_is_a_fault():
    with served(lambda number: Answer(raw=b"what?\r\n\r\n")) as server:
        found, _ = sent(server.url, 1)
    assert sum(found.faults.values()) == 1
    assert "no HTTP" in next(iter(found.faults))


def test_an_answer_that_does_not_come_is_given_up_and_its_wait_counts():
    with served(lambda number: Answer(silent=True)) as server:
        found, _ = sent(server.url, 2, timeout_seconds=0.05)
    assert found.faults == {"no answer within 0.05 s": 2}
    assert found.latency


def test_nobody_listens_is_a_fault_of_every_request():
    with served() as server:
        url = server.url
    found, _ = sent(url, 3)
    assert sum(found.faults.values()) == 3
    assert all("no connection" in reason for reason in found.faults)


def test_what_is_dropped_is_no_fault():
    async def drop(sender):
        assert sender.give_up_all(None) == 1
        sender.halted = False

    with served() as server:
        found, _ = sent(server.url, 1, give_up=drop)
    assert (found.faults, found.answered) == ({}, 0)


@pytest.mark.parametrize("later", [-1.0, 0.01])
def test_an_alarm_rings_once_and_never_early(later):
    async def run():
        rung, moment = [], time.monotonic() + later
        done = asyncio.Event()
        alarm = Alarm(
            asyncio.get_running_loop(), lambda: (rung.append(time.monotonic()), done.set())
        )
        alarm.set(moment)
        await asyncio.wait_for(done.wait(), 10)
        alarm.close()
        return rung, moment

    rung, moment = asyncio.run(run())
    assert len(rung) == 1
    assert rung[0] >= moment
