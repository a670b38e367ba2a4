from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundhouse.gitops.schedule_times import ScheduleError, schedule

pytestmark = pytest.mark.unit
FRIDAY = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def following(expression, after=FRIDAY, zone=None):
    found = schedule(expression, zone).next_after(after, FRIDAY)
    return None if found is None else found.strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("expression", "next_time"),
    [
        ("cron(0 6 ? * MON-FRI *)", "2026-11-23 06:00:00"),
        ("cron(0/15 * * * ? *)", "2026-11-20 12:15:00"),
        ("cron(*/20 12 ? * 6 *)", "2026-11-20 12:20:00"),
        ("cron(30 18 L * ? *)", "2026-11-30 18:30:00"),
        ("cron(0 9 1W * ? *)", "2026-12-01 09:00:00"),
        ("cron(0 9 15W * ? 2027)", "2027-01-15 09:00:00"),
        ("cron(0 9 15W 8 ? 2027)", "2027-08-16 09:00:00"),
        ("cron(0 9 LW 1 ? 2027)", "2027-01-29 09:00:00"),
        ("cron(0 9 ? * 2#1 *)", "2026-12-07 09:00:00"),
        ("cron(0 9 ? * FRIL *)", "2026-11-27 09:00:00"),
        ("cron(0 0 29 2 ? *)", "2028-02-29 00:00:00"),
        ("cron(0 0 1 JAN ? 2060)", "2060-01-01 00:00:00"),
        ("cron(0 0 1 JAN ? 2020)", None),
        ("at(2026-12-24T18:00:00)", "2026-12-24 18:00:00"),
        ("at(2026-11-20T12:00:00)", None),
        ("rate(5 minutes)", "2026-11-20 12:05:00"),
        ("rate(1 day)", "2026-11-21 12:00:00"),
    ],
)
def test_next_time(expression, next_time):
    assert following(expression) == next_time


def test_zone_is_the_wall_clock_s():
    assert following("cron(0 6 ? * MON-FRI *)", zone="Europe/Berlin") == "2026-11-23 05:00:00"
    assert following("at(2026-12-24T18:00:00)", zone="Asia/Tokyo") == "2026-12-24 09:00:00"


def test_a_time_that_the_clock_change_skips_is_left_out():
    before = datetime(2027, 3, 27, 12, 0, tzinfo=UTC)
    assert following("cron(30 2 * * ? *)", before, "Europe/Berlin") == "2027-03-29 00:30:00"


@given(st.integers(0, 59), st.integers(0, 23), st.integers(0, 10**8))
def test_a_daily_time_comes_within_a_day_and_at_its_hour(minute, hour, offset):
    after = FRIDAY + timedelta(seconds=offset)
    found = schedule(f"cron({minute} {hour} * * ? *)").next_after(after, FRIDAY)
    assert timedelta(0) < found - after <= timedelta(days=1)
    assert (found.hour, found.minute, found.second) == (hour, minute, 0)


@given(st.integers(1, 10_000), st.integers(0, 10**7))
def test_a_rate_falls_on_its_own_steps(minutes, offset):
    after = FRIDAY + timedelta(seconds=offset)
    found = schedule(f"rate({minutes} minute{'' if minutes == 1 else 's'})").next_after(
        after, FRIDAY
    )
    assert timedelta(0) < found - after <= timedelta(minutes=minutes)
    assert (found - FRIDAY) % timedelta(minutes=minutes) == timedelta(0)


@pytest.mark.parametrize(
    ("expression", "zone", "message"),
    [
        ("cron(0 6 * * * *)", None, "must say . for exactly one of the day of the month"),
        ("cron(0 6 ? * MON)", None, "has 5 fields, and cron(.*) has six"),
        ("cron(61 6 ? * MON *)", None, "says 61 for the minutes, which takes 0 to 59"),
        ("cron(0 6 ? * 8L *)", None, "says 8L for the day of the week, which takes 1 to 7"),
        ("cron(a 6 ? * MON *)", None, "says a for the minutes"),
        ("rate(1 minutes)", None, "1 takes minute"),
        ("cron(0 6 ? * FRI-MON *)", None, "6-2 is no range"),
        ("rate(0 minutes)", None, "is no rate"),
        ("at(2026-13-01T00:00:00)", None, "names no time"),
        ("every day", None, "is no schedule expression; examples: cron"),
        ("rate(5 minutes)", "Mars/Base", "is no time zone that this machine knows"),
    ],
)
def test_refuses(expression, zone, message):
    with pytest.raises(ScheduleError, match=message):
        schedule(expression, zone)
