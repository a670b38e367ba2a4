"""The file of a plan, as anybody may have written it, and a plan for people."""

from __future__ import annotations

import json

import pytest

from roundhouse.errors import RoundhouseError
from roundhouse.gitops.plan_document import CostChange, MonthlyCost, read_plan_file
from roundhouse.gitops.plan_text import headline, total_cost
from tests.unit.roundhouse.gitops.plans import endpoint, plan


def test_plan_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "plan.json"
    file.write_text(plan(endpoint()).model_dump_json())
    assert read_plan_file(file) == plan(endpoint())


def plan_json(**fields):
    return json.dumps({**plan().model_dump(mode="json"), **fields})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Invalid JSON"),
        ("[" * 100_000, "Invalid JSON"),
        ("\udc80".encode("utf-8", "surrogateescape"), "Invalid JSON"),
        (plan_json(version=2), r"version: Input should be 1"),
        (plan_json(html="<b>"), "html: Extra inputs"),
        (plan_json(data_only="true"), "data_only: Input should be a valid boolean"),
        (plan_json(faults="x"), "faults: Input should be a valid"),
        (plan_json(environments=[{"environment": 1}]), r"environments\.0\.environment"),
    ],
)
def test_refuses_a_file_that_is_no_plan(tmp_path, text, message):
    file = tmp_path / "plan.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RoundhouseError, match=message) as refused:
        read_plan_file(file)
    assert "\n" not in str(refused.value)


def test_refuses_a_file_that_is_not_there_or_too_large(tmp_path):
    with pytest.raises(RoundhouseError, match="cannot be read"):
        read_plan_file(tmp_path / "none.json")
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    with pytest.raises(RoundhouseError, match="larger than 64 MiB"):
        read_plan_file(large)


def test_outage_is_in_the_headline():
    lost = endpoint().model_copy(update={"outage": True})
    assert "OUTAGE of m" in headline(plan(lost).environments[0])


def test_cost_of_an_unknown_price_is_unknown():
    none = MonthlyCost(least=None, most=None)
    cost = CostChange(before=None, after=none, unknown=("ml.p6.48xlarge",))
    assert total_cost(plan(endpoint(cost=cost)).environments[0]) == (
        "unknown (no price of ml.p6.48xlarge)"
    )
