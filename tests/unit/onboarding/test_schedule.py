"""Schedule expressions are read as Application Auto Scaling and EventBridge document them."""

from __future__ import annotations

import pytest

from onboarding.schedule import EXAMPLES, schedule_fault, time_zones

# The examples of AWS's own documentation.
DOCUMENTED = (
    "cron(0 10 * * ? *)",
    "cron(15 12 * * ? *)",
    "cron(0 18 ? * MON-FRI *)",
    "cron(0 8 1 * ? *)",
    "cron(0/15 * * * ? *)",
    "cron(0/10 * ? * MON-FRI *)",
    "cron(0/5 8-17 ? * MON-FRI *)",
    "cron(0 9 ? * 2#1 *)",
    "cron(15 10 ? * 6L 2022-2023)",
    "cron(0 0 3W * ? *)",
    "cron(0 0 L * ? *)",
    "cron(30 6 ? * MON *)",
    "cron(0,30 0 1,15 JAN,JUL ? 2027)",
    "rate(5 minutes)",
    "rate(1 hour)",
    "at(2027-01-31T06:00:00)",
)


@pytest.mark.parametrize("text", DOCUMENTED)
def test_documented_expression_has_no_fault(text):
    assert schedule_fault(text) is None


def test_examples_in_our_own_sentence_have_no_fault():
    assert [schedule_fault(expression) for expression in EXAMPLES.split(", ")] == [None, None, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no schedule expression"),
        ("0 6 * * ? *", "is no schedule expression"),
        ("CRON(0 6 * * ? *)", "is no schedule expression"),
        ("cron(0 6 * * *)", "has 5 fields"),
        ("cron(60 6 * * ? *)", "says 60 for the minutes, which takes 0 to 59"),
        ("cron(0 24 * * ? *)", "says 24 for the hours"),
        ("cron(0 6 0 * ? *)", "says 0 for the day of the month, which takes 1 to 31"),
        ("cron(0 6 32W * ? *)", "says 32W for the day of the month"),
        ("cron(0 6 * 13 ? *)", "says 13 for the month, which takes 1 to 12, or JAN to DEC"),
        ("cron(0 6 ? * 8 *)", "says 8 for the day of the week, which takes 1 to 7, or SUN to SAT"),
        ("cron(0 6 ? * MON#6 *)", "says MON#6 for the day of the week"),
        ("cron(0 6 ? * MONDAY *)", "says MONDAY for the day of the week"),
        ("cron(0 6 * * ? 1969)", "says 1969 for the year"),
        ("cron(*/0 6 * * ? *)", "says */0 for the minutes"),
        ("cron(1-2-3 6 * * ? *)", "says 1-2-3 for the minutes"),
        ("cron(1, 6 * * ? *)", "says 1, for the minutes"),
        ("cron(? 6 * * ? *)", "says ? for the minutes"),
        ("cron(0 6 * * * *)", "must say ? for exactly one"),
        ("cron(0 6 ? * ? *)", "must say ? for exactly one"),
        ("rate(0 minutes)", "is no rate"),
        ("rate(5 weeks)", "is no rate"),
        ("rate(1 minutes)", "says 1 minutes, and 1 takes minute"),
        ("rate(2 hour)", "says 2 hour, and 2 takes hours"),
        ("at(2027-02-30T06:00:00)", "names no time"),
        ("at(2027-01-31 06:00:00)", "names no time"),
        ("at(2027-01-31T06:00:00Z)", "names no time"),
        ("at(２０２７-01-31T06:00:00)", "names no time"),
    ],
)
def test_refuses_an_expression_that_aws_would(text, message):
    fault = schedule_fault(text)
    assert fault is not None and message in fault


def test_time_zones_are_those_of_the_iana_data_base():
    assert {"UTC", "Europe/Berlin", "America/New_York"} <= time_zones()
