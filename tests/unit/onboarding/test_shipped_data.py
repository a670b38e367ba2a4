"""Schedules, versions, and the data that comes with the code."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from onboarding.fault import FaultsError
from onboarding.prices import parse_prices
from onboarding.schedule import schedule_fault, time_zones
from onboarding.starter_texts import Kind, starter_texts
from onboarding.values import is_same_build

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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 6 * * ? *", "is no schedule expression"),
        ("cron(0 6 * * *)", "has 5 fields"),
        ("cron(60 6 * * ? *)", "says 60 for the minutes, which takes 0 to 59"),
        ("cron(0 6 0 * ? *)", "says 0 for the day of the month, which takes 1 to 31"),
        ("cron(0 6 32W * ? *)", "says 32W for the day of the month"),
        ("cron(0 6 * 13 ? *)", "says 13 for the month, which takes 1 to 12, or JAN to DEC"),
        ("cron(0 6 ? * 8 *)", "says 8 for the day of the week, which takes 1 to 7, or SUN to SAT"),
        ("cron(0 6 ? * MON#6 *)", "says MON#6 for the day of the week"),
        ("cron(0 6 * * ? 1969)", "says 1969 for the year"),
        ("cron(*/0 6 * * ? *)", "says */0 for the minutes"),
        ("cron(1, 6 * * ? *)", "says 1, for the minutes"),
        ("cron(? 6 * * ? *)", "says ? for the minutes"),
        ("cron(0 6 * * * *)", "must say ? for exactly one"),
        ("cron(0 6 ? * ? *)", "must say ? for exactly one"),
        ("rate(0 minutes)", "is no rate"),
        ("rate(1 minutes)", "says 1 minutes, and 1 takes minute"),
        ("rate(2 hour)", "says 2 hour, and 2 takes hours"),
        ("at(2027-02-30T06:00:00)", "names no time"),
        ("at(2027-01-31T06:00:00Z)", "names no time"),
        ("at(２０２７-01-31T06:00:00)", "names no time"),
    ],
)
def test_refuses_an_expression_that_aws_would(text, message):
    fault = schedule_fault(text)
    assert fault is not None and message in fault


def test_time_zones_are_those_of_the_iana_data_base():
    assert {"UTC", "Europe/Berlin", "America/New_York"} <= time_zones()


PRICES = """\
regions:
  us-east-1:
    date: "2026-11-22"
    source: a list
    hosting:
      ml.g5.xlarge: 1.4084
"""


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (
            PRICES.replace("1.4084", "about a dollar"),
            6,
            "ml.g5.xlarge: Input should be a valid",
        ),
        (PRICES.replace("1.4084", "0"), 6, "ml.g5.xlarge: Input should be greater than 0"),
        (PRICES.replace("1.4084", ".nan"), 6, "ml.g5.xlarge: Input should be"),
        (PRICES.replace("    source: a list\n", ""), 2, "us-east-1.source: Field required"),
        (PRICES + "    hostin: {}\n", 7, "us-east-1.hostin: Extra inputs are not permitted"),
        (PRICES + "  - [", 7, "is no YAML"),
        ("", None, "Input should be a valid dictionary"),
    ],
)
def test_refuses_an_unreadable_price(text, line, what):
    with pytest.raises(FaultsError) as error:
        parse_prices(text)
    (fault,) = error.value.faults
    assert (fault.file, fault.line) == ("onboarding/data/prices.yaml", line)
    assert what in fault.what and "\n" not in str(fault)
    assert fault.way_out == "correct it, or restore the file from git"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.16.1.11", "10.16.1.11", True),
        ("11.0.0", "11.0.0.114", True),
        ("10.6.0.26", "10.6.0", True),
        ("10.16.1.11", "10.16.1.12", False),
        ("10.16.1", "10.16.11.1", False),
        ("10.6.0.26", "10.6.1", False),
        ("10.6.0", "11.6.0", False),
        ("10.6.0", "", False),
    ],
)
def test_every_number_that_both_name_counts(one, other, same):
    assert is_same_build(one, other) is same
    assert is_same_build(other, one) is same


DATA = Path(__file__).resolve().parents[3] / "models" / "data"
KINDS: tuple[Kind, ...] = get_args(Kind)
SHIPPED = {
    kind: (DATA / f"{kind}-sentences.txt").read_text(encoding="utf-8").splitlines()
    for kind in KINDS
}
STARTER = {kind: starter_texts(kind).splitlines() for kind in KINDS}
SETS = [pytest.param(sets, id=name) for name, sets in (("shipped", SHIPPED), ("starter", STARTER))]


@pytest.mark.parametrize("sets", SETS)
def test_no_line_stands_in_two_sets_or_twice(sets):
    lines = [line.casefold() for kind in KINDS for line in sets[kind]]
    assert len(set(lines)) == len(lines)
    assert all(line == line.strip() != "" for line in lines)
