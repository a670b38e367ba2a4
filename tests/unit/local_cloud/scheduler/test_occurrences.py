from datetime import UTC, datetime, timedelta

import pytest

from local_cloud.protocol.schedule import ScheduleError
from local_cloud.scheduler.occurrences import occurrences

pytestmark = pytest.mark.unit
NOW = datetime(2027, 1, 31, 5, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def of(expression, pace=60.0, target=None, **given):
    request = {"ScheduleExpression": expression, "Target": target or {}, **given}
    return occurrences(request, NOW, pace)


def test_rate_starts_at_once_and_keeps_its_interval():
    its = of("rate(1 day)")
    assert its.is_due(NOW)
    assert not its.is_due(NOW + timedelta(hours=23))
    # Late by an hour: the next one is not.
    assert its.is_due(NOW + timedelta(hours=25))
    assert its.due == NOW + timedelta(days=2)


def test_rate_waits_for_its_start_date_and_runs_at_the_local_clouds_pace():
    start = NOW + timedelta(hours=1)
    its = of("rate(1 hour)", pace=1.0, StartDate=start.timestamp())
    assert not its.is_due(start - MINUTE)
    assert its.is_due(start)
    assert its.due == start + timedelta(seconds=60)


def test_cron_follows_its_time_zone():
    its = of("cron(0 7 * * ? *)", ScheduleExpressionTimezone="Europe/Berlin")
    assert not its.is_due(NOW)
    assert its.is_due(NOW + timedelta(hours=1))
    assert its.due == NOW + timedelta(hours=25)


def test_one_time_schedule_completes_after_its_call():
    its = of("at(2027-01-31T06:00:00)", EndDate=NOW.timestamp())
    assert not its.is_completed
    assert its.is_due(NOW + timedelta(hours=1))
    its.succeed()
    assert its.is_completed
    assert not its.is_due(NOW + timedelta(hours=2))


def test_rate_completes_at_its_end_date():
    its = of("rate(1 hour)", EndDate=(NOW + 90 * MINUTE).timestamp())
    assert its.is_due(NOW) and its.is_due(NOW + 60 * MINUTE)
    assert its.is_completed


def test_failed_call_is_tried_again_as_often_as_its_policy_says():
    policy = {"MaximumRetryAttempts": 2, "MaximumEventAgeInSeconds": 3600}
    its = of("at(2027-01-31T05:01:00)", target={"RetryPolicy": policy})
    for number in range(1, 4):
        assert its.is_due(NOW + number * MINUTE)
        assert its.fail(NOW + number * MINUTE, MINUTE) == (number < 3)
    assert its.is_completed


def test_failed_call_is_given_up_at_its_age():
    policy = {"MaximumRetryAttempts": 100, "MaximumEventAgeInSeconds": 60}
    its = of("at(2027-01-31T05:01:00)", target={"RetryPolicy": policy})
    assert its.is_due(NOW + MINUTE)
    assert its.fail(NOW + MINUTE, MINUTE)
    assert its.is_due(NOW + 2 * MINUTE)
    assert not its.fail(NOW + 2 * MINUTE, MINUTE)


@pytest.mark.parametrize("text", ["rate(1 hours)", "cron(0 4 * * * *)", "every day", "at(now)"])
def test_refuses_an_expression(text):
    with pytest.raises(ScheduleError):
        of(text)
