"""A plan for people: its headline and its costs."""

from __future__ import annotations

import pytest

from roundhouse.gitops.plan_document import CostChange, MonthlyCost
from roundhouse.gitops.plan_text import headline, sections, total_cost
from tests.unit.roundhouse.gitops.plans import endpoint, plan

pytestmark = pytest.mark.unit


def test_outage_is_in_the_headline():
    lost = endpoint().model_copy(update={"outage": True})
    assert "OUTAGE of m" in headline(plan(lost).environments[0])


def test_cost_of_an_unknown_price_is_unknown():
    none = MonthlyCost(least=None, typical=None, most=None)
    cost = CostChange(before=None, after=none, unknown=("ml.p6.48xlarge",))
    assert total_cost(plan(endpoint(cost=cost)).environments[0]) == (
        "unknown (no price of ml.p6.48xlarge)"
    )


def test_changed_cost_has_hours_to_break_even_and_a_new_endpoint_none():
    before, after = (MonthlyCost(least=usd, typical=usd, most=usd) for usd in (1460.0, 730.0))
    cost = CostChange(before=before, after=after, build=2.0)
    items = [
        endpoint("saves", cost),
        endpoint("same", CostChange(before=before, after=before)),
        endpoint("new", CostChange(before=None, after=after)),
        endpoint("dearer", CostChange(before=after, after=before, build=None)),
    ]
    found = {section.title: section for section in sections(plan(*items).environments[0])}
    assert found["Cost now and of the candidate"].rows == (
        ("saves", "1,460.00", "730.00", "2.00", "2.0"),
        ("dearer", "730.00", "1,460.00", "unknown", "never"),
    )
