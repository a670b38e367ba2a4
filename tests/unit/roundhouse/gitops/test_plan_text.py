"""A plan for people: its headline and its costs."""

from __future__ import annotations

import pytest

from roundhouse.gitops.plan_document import CostChange, MonthlyCost
from roundhouse.gitops.plan_text import (
    headline,
    total_cost,
)
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
