"""A plan for people: complete, short enough, and safe whatever the names hold."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundhouse.gitops.markdown import MOST_CHARACTERS, markdown
from roundhouse.gitops.plan_document import (
    CostChange,
    EndpointChange,
    EnvironmentPlan,
    MonthlyCost,
    PermissionChange,
    Plan,
    PropertyChange,
    ResourceChange,
    Side,
)
from roundhouse.gitops.plan_text import (
    COMMENT_MARKER,
    comment,
    headline,
    total_cost,
)

pytestmark = pytest.mark.unit

COST = CostChange(
    before=MonthlyCost(least=100.0, typical=150.0, most=400.0),
    after=MonthlyCost(least=100.0, typical=150.0, most=500.0),
)


def endpoint(name="m", cost=COST, text="text"):
    changes = (PropertyChange(path="A", before=text, after="b"),)
    return EndpointChange(
        name=name,
        kind="changed",
        outage=False,
        is_estimated=False,
        resources=(
            ResourceChange(id="A", type="AWS::IAM::Role", change="in-place", properties=changes),
        ),
        permissions=PermissionChange(added=(f"Role: {text}",)),
        rollout=None,
        scaling=(),
        cost=cost,
        faults=(),
    )


def plan(*endpoints, ref="main"):
    environment = EnvironmentPlan(
        environment="dev",
        id="0" * 12,
        endpoints=endpoints,
        engines=(),
        unchanged_endpoints=3,
        prices_date="2026-01-01",
    )
    side = Side(ref=ref, commit="a" * 40)
    return Plan(base=side, head=side, data_only=True, environments=(environment,))


def test_comment_says_change_cost_and_what_is_not_touched():
    text = comment(plan(endpoint("search")))
    assert text.startswith(COMMENT_MARKER)
    assert "dev: 1 changed endpoint, +0 USD to +100 USD a month" in text
    assert "| search | changed | - | 100 / 150 / 400 → 100 / 150 / 500 |" in text
    assert "<details><summary>Resources: 1</summary>" in text
    assert "Not touched: 3 endpoints." in text


def test_outage_is_in_the_headline():
    lost = endpoint().model_copy(update={"outage": True})
    assert "OUTAGE of m" in headline(plan(lost).environments[0])


def test_cost_of_an_unknown_price_is_unknown():
    none = MonthlyCost(least=None, typical=None, most=None)
    cost = CostChange(before=None, after=none, unknown=("ml.p6.48xlarge",))
    assert total_cost(plan(endpoint(cost=cost)).environments[0]) == (
        "unknown (no price of ml.p6.48xlarge)"
    )


def test_long_plan_is_cut_with_its_tags_closed_and_says_so():
    text = comment(plan(*(endpoint(f"model-{number}", text="x" * 50) for number in range(800))))
    assert len(text) <= MOST_CHARACTERS
    assert text.count("<details>") == text.count("</details>")
    assert "cut at 65,000 characters" in text
    assert "800 changed endpoints" in text[:200]


@given(st.text(max_size=200))
def test_hostile_words_stay_words(words):
    text = comment(plan(endpoint(name=words, text=words), ref=words or "x"))
    plain = comment(plan(endpoint(name="n", text="n"), ref="x"))
    assert len(text.split("\n")) == len(plain.split("\n"))
    assert text.count("<details>") == plain.count("<details>")
    assert len(re.findall(r"(?<!\\)\|", text)) == len(re.findall(r"(?<!\\)\|", plain))


@pytest.mark.parametrize(
    "words",
    ["@everyone", "#12", "a\n\n# Title", "<img src=x onerror=1>", "[a](http://x)", "`rm`", "||",
     "https://example.com", "www.example.com", "&lt;b&gt;", "\u202egnp.exe", "<!-- x -->"],
)  # fmt: skip
def test_markdown_shows_words_as_they_are(words):
    shown = markdown(words)
    assert not re.search(r"[@#&](?!\u200b)|(?<!\\)[<>`\[\]|]|\n|\u202e", shown)
    assert not re.search(r"://(?!\u200b)|www\.(?!\u200b)", shown)
