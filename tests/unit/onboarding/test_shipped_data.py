"""Versions, and the data that comes with the code."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from onboarding.fault import FaultsError
from onboarding.prices import parse_prices
from onboarding.starter_texts import Kind, starter_texts
from onboarding.values import is_same_build

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
