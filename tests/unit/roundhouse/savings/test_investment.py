"""Return on investment: savings, break-even, and what is not known."""

from __future__ import annotations

import dataclasses
import json

import pytest

from roundhouse.savings.investment import Fleet, Instances, Investment

pytestmark = pytest.mark.unit


def fleet(*groups):
    return Fleet(
        groups=tuple(
            Instances(instance_type=name, count=count, usd_an_hour=usd)
            for name, count, usd in groups
        ),
        origin="a test",
    )


def investment(present, proposed, build_usd=0.0):
    return Investment(name="e", present=present, proposed=proposed, build_usd=build_usd)


FOUR = fleet(("ml.g5.xlarge", 4, 1.0))
TWO = fleet(("ml.g5.xlarge", 2, 1.0))


def test_build_is_paid_back_by_what_is_saved():
    item = investment(FOUR, TWO, build_usd=14.6)
    assert item.saving_a_month == pytest.approx(2 * 730)
    # 2 USD an hour are 48 a day.
    assert item.break_even_days == pytest.approx(14.6 / 48)
    assert "14.60 USD of builds are paid back in 0.3 days" in item.outcome


def test_nothing_to_build_is_paid_back_at_once():
    item = investment(FOUR, TWO)
    assert item.break_even_days == 0.0 and "nothing is to be built" in item.outcome


def test_instances_of_several_types_add_up():
    mixed = fleet(("ml.g5.xlarge", 1, 1.0), ("ml.g6.xlarge", 2, 0.5))
    assert mixed.usd_a_month == pytest.approx(2 * 730)
    assert str(mixed) == "1 x ml.g5.xlarge, 2 x ml.g6.xlarge"


def test_no_saving_is_never_paid_back():
    item = investment(TWO, fleet(("ml.g6.xlarge", 4, 0.5)), build_usd=3.0)
    assert item.saving_a_month == 0 and item.break_even_days is None
    assert item.outcome == "no saving, so the build is never paid back"


def test_larger_cost_is_never_paid_back():
    item = investment(TWO, FOUR, build_usd=3.0)
    assert item.saving_a_month == pytest.approx(-1460) and item.break_even_days is None
    assert item.outcome == "1,460.00 USD a month more, so the build is never paid back"


@pytest.mark.parametrize(
    ("present", "proposed"),
    [
        (fleet(("ml.g5.xlarge", 4, None)), TWO),
        (FOUR, fleet(("ml.g5.xlarge", 2, None))),
        (FOUR, fleet(("ml.g5.xlarge", None, 1.0))),
        (FOUR, fleet(("ml.g5.xlarge", 2, 1.0), ("ml.g6.xlarge", 1, None))),
    ],
)
def test_unknown_prices_and_counts_stay_unknown(present, proposed):
    item = investment(present, proposed, build_usd=1.0)
    assert item.saving_a_month is None and item.break_even_days is None
    assert "not known" in item.outcome


def test_unknown_cost_of_a_build_leaves_the_saving_known():
    item = investment(FOUR, TWO, build_usd=None)
    assert item.saving_a_month == pytest.approx(1460) and item.break_even_days is None
    assert "the cost of the build is not known" in item.outcome


def test_endpoint_that_does_not_run_is_compared_with_nothing():
    item = investment(None, TWO)
    assert item.saving_a_month is None and "nothing runs" in item.outcome


def test_outcome_of_an_endpoint_that_cannot_be_read_is_not_known():
    item = dataclasses.replace(investment(None, TWO), note="no AWS credentials were found")
    assert item.outcome == "not known, since what runs is not"


def test_no_instance_costs_nothing_whatever_its_price():
    assert fleet(("ml.g5.xlarge", 0, None)).usd_a_month == 0.0


def test_json_has_the_results():
    data = json.loads(json.dumps(investment(FOUR, TWO, build_usd=14.6).as_dict()))
    assert data["present_usd_a_month"] == 2920 and data["proposed_usd_a_month"] == 1460
    assert data["saving_usd_a_month"] == 1460 and data["break_even_days"] > 0
