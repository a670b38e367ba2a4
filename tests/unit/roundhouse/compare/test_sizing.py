"""Instances for a demand, against the arithmetic of published rows."""

from __future__ import annotations

import pytest

from roundhouse.compare.sizing import parse_demand, size
from roundhouse.errors import UsageError

PUBLISHED = [
    # invocations a minute, instances for 30,000 a minute, USD an hour of all, of one
    (490, 62, 45.66, 0.7364),
    (1078, 28, 20.62, 0.7364),
    (3192, 10, 7.36, 0.7364),
    (1335, 23, 21.62, 0.94),
    (5356, 6, 29.34, 4.89),
]
"""Rows of Inference Recommender's results for BERT-large, as AWS's blog printed them."""


@pytest.mark.parametrize(("invocations", "instances", "usd", "price"), PUBLISHED)
def test_the_least_instances_are_those_of_the_published_rows(invocations, instances, usd, price):
    sizing = size(500.0, invocations / 60, price=price, safety_factor=1.0)
    assert sizing.least_instances == instances
    assert sizing.least_instances * price == pytest.approx(usd, abs=0.01)


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
