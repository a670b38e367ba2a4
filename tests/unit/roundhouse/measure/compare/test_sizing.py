"""Instances for a demand, against the arithmetic of published rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roundhouse.errors import UsageError
from roundhouse.measure.compare.result import parse_demand, size

BENCHMARKS = Path(__file__).parents[5] / "docs" / "benchmarks"
PUBLISHED = json.loads((BENCHMARKS / "recommender-bert-large.json").read_text(encoding="utf-8"))
"""Inference Recommender's results for BERT-large: 8 configurations on 3 instance types."""
PRICES = PUBLISHED["usd_an_hour_of_one"]


@pytest.mark.parametrize(
    "row", PUBLISHED["rows"], ids=lambda row: "{configuration}-{instance_type}".format(**row)
)
def test_the_least_instances_and_their_price_are_those_of_the_published_rows(row):
    price = PRICES[row["instance_type"]]
    demand = PUBLISHED["demand_a_minute"] / 60
    sizing = size(demand, row["invocations_a_minute"] / 60, price=price, safety_factor=1.0)
    assert sizing.least_instances == row["instances"]
    assert sizing.least_instances * price == pytest.approx(row["usd_an_hour"], abs=0.01)
    assert sizing.instances == row["instances"] + 1


def test_one_instance_may_be_lost():
    sizing = size(100.0, 50.0, price=2.0, safety_factor=0.5)
    assert (sizing.least_instances, sizing.instances, sizing.usd_an_hour) == (2, 3, 6.0)
    assert sizing.target_per_minute == 1500
    assert sizing.usd_a_million == pytest.approx(6.0 / 360_000 * 1e6)


def test_a_price_that_is_not_known_stays_so():
    sizing = size(100.0, 50.0, price=None, safety_factor=0.5)
    assert (sizing.usd_an_hour, sizing.usd_a_million, sizing.usd_a_month) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "rate"), [("500", 500), ("30000/min", 500), ("30,000/min", 500), ("1.5/s", 1.5)]
)
def test_a_demand_has_its_time(text, rate):
    assert parse_demand(text) == rate


@pytest.mark.parametrize("text", ["0", "-1", "many", "5/week", "1e9", "99999999999/s", ""])
def test_refuses_a_demand_that_is_none(text):
    with pytest.raises(UsageError, match="--demand"):
        parse_demand(text)
