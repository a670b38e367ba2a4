"""Versions, and the data that comes with the code."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import get_args

import pytest

from onboarding.dataset import Kind, starter_texts
from onboarding.fault import FaultsError
from onboarding.platform import instance_types
from onboarding.prices import parse_prices, price, price_list, prices_date, stale_note
from onboarding.values import is_same_build

PRICES = """\
regions:
  us-east-1:
  - date: "2026-09-22"
    source: a list
    hosting: {ml.g5.xlarge: 1.5, ml.g6.xlarge: 1.2}
  - date: "2026-11-22"
    source: a newer list
    hosting:
      ml.g5.xlarge: 1.4084
"""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (PRICES.replace("1.4084", "0"), "ml.g5.xlarge: Input should be greater than 0"),
        (PRICES.replace("1.4084", ".nan"), "ml.g5.xlarge: Input should be"),
        (PRICES.replace("    source: a newer list\n", ""), "us-east-1.1.source: Field required"),
        (PRICES.replace("2026-11-22", "late in 2026"), "us-east-1.1.date: Input should be a valid"),
        (PRICES + "    hostin: {}\n", "us-east-1.1.hostin: Extra inputs are not permitted"),
        (PRICES + "  - [", "is no YAML"),
        ("", "Input should be an object"),
    ],
)
def test_refuses_an_unreadable_price(text, what):
    with pytest.raises(FaultsError) as error:
        parse_prices(text)
    (fault,) = error.value.faults
    assert fault.file == "onboarding/data/prices.yaml" and what in fault.what
    assert "\n" not in str(fault)


def test_newest_row_of_a_type_counts_and_prices_are_as_old_as_the_oldest_row_used(monkeypatch):
    monkeypatch.setattr("onboarding.prices.price_list", lambda: parse_prices(PRICES))
    names = ["ml.g5.xlarge", "ml.g6.xlarge", "ml.p5.48xlarge"]
    assert [price("us-east-1", "hosting", name) for name in names] == [1.4084, 1.2, None]
    assert price("us-east-1", "training", "ml.g6.xlarge") is None
    assert price("eu-west-1", "hosting", "ml.g6.xlarge") is None
    assert prices_date("us-east-1", names) == "2026-09-22"
    assert prices_date("us-east-1", names[:1]) == "2026-11-22"
    assert prices_date("us-east-1", names[2:]) is None


def test_prices_of_more_than_90_days_are_noted():
    assert stale_note("2026-09-22", date(2026, 12, 21)) is None
    assert stale_note(None) is None
    assert stale_note("2026-09-22", date(2026, 12, 22)) == (
        "Prices of 2026-09-22 are 91 days old, more than 90: `make prices` reads AWS's list."
    )


def test_shipped_prices_are_of_types_that_we_know_and_each_table_has_a_row():
    for region, tables in price_list().regions.items():
        for table in tables:
            named = {*table.hosting, *table.training}
            assert named <= instance_types().keys(), region
            assert named or table.codebuild


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
