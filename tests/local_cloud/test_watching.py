"""Alarms of a deployed endpoint, and the dashboard that shows them.

What our templates watch, evaluated on a real server's requests.
"""

from __future__ import annotations

import pytest

from tests.local_cloud.account import until
from tests.local_cloud.load import steady_load
from tests.local_cloud.tiny_session import Caller, deploy_all, session_at, sound_network

pytestmark = pytest.mark.local_cloud

WATCHED = "{instance_type: ml.c7i.large, latency_slo_ms: 60000, scaling: {min: 1, max: 1}}"
ENDPOINT = "local-tiny"
SECONDS_PER_MINUTE = "3"
"""Hosts that nothing scales are looked at every ten real seconds.

Less than the five minutes of the alarm.
"""
OURS = {
    "server-errors",
    "client-errors",
    "no-answers",
    "latency",
    "slow",
    "no-instances",
    "disk",
    "host-memory",
    "saturation",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    with session_at(
        tmp_path_factory.mktemp("watching"), seconds_per_minute=SECONDS_PER_MINUTE
    ) as tiny:
        tiny.write_model(sound_network(), endpoint=WATCHED)
        deploy_all(tiny.start())
        yield tiny.start()


def states(session):
    found = session.clients("cloudwatch").describe_alarms(AlarmNamePrefix=f"{ENDPOINT}-")[
        "MetricAlarms"
    ]
    return {alarm["AlarmName"].removeprefix(f"{ENDPOINT}-"): alarm["StateValue"] for alarm in found}


def test_every_alarm_is_evaluated_and_well_under_sound_requests(session):
    assert set(states(session)) == OURS
    with steady_load(Caller(session.clients), ENDPOINT) as load:
        until(lambda: states(session) if set(states(session).values()) == {"OK"} else None)
    assert load.failures == []


def test_clients_mistakes_trip_their_own_alarm_alone_and_it_recovers(session):
    with steady_load(Caller(session.clients), ENDPOINT, body=b"{") as load:
        until(lambda: states(session)["client-errors"] == "ALARM")
        now = states(session)
    assert load.failures and not load.answers
    assert {name for name, state in now.items() if state == "ALARM"} == {"client-errors"}
    until(lambda: states(session)["client-errors"] == "OK")
