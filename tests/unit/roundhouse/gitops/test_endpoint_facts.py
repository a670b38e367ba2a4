"""Counts, cost and rollout, read from an endpoint's template."""

from __future__ import annotations

import pytest

from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.gitops.endpoint_facts import monthly_cost, rollout_plan, variant_facts
from stacks.endpoint_stack import endpoint_template
from tests.fixtures.many_models import many_models
from tests.unit.roundhouse.gitops.repository import ROOT

pytestmark = pytest.mark.unit

IMAGES = {"triton": "a", "python-server": "b", "python-server-gpu": "c"}
WEEK = 7 * 24


@pytest.fixture
def template(tmp_path):
    def make(endpoint):
        tree = many_models(
            ROOT, tmp_path / "tree", 1, environment="dev", changes={"endpoint": endpoint}
        )
        (deployment,) = deployments(read_tree(tree.root), "dev")
        return endpoint_template(deployment, IMAGES)

    return make


@pytest.mark.parametrize(
    ("up", "down", "hours"),
    [
        ("cron(0 7 ? * MON-FRI *)", "cron(0 19 ? * MON-FRI *)", 5 * 12),
        ("cron(0 7 ? * 2-6 2026)", "cron(0 19 ? * 2-6 2026)", 5 * 12),
        ("cron(0 7 ? * 2-6 2027)", "cron(0 19 ? * 2-6 2026)", 0),
        ("cron(30 7 ? JUN TUE,THU *)", "cron(0 19 * * ? *)", 2 * 11.5),
        ("cron(0 0/6 * * ? *)", "cron(0 3/6 * * ? *)", 7 * 12),
        ("cron(0 */6 2 6 ? *)", "cron(0 9 2 6 ? *)", WEEK - 3),
        ("cron(0 7 L * ? *)", "cron(0 19 ? * 2#1 *)", 0),
        ("rate(2 days)", "cron(0 6 * * ? *)", 4 * 6),
        ("at(2026-06-02T00:00:00)", "cron(0 6 * * ? *)", 0),
        ("cron(0 7 ? * SUN *)", "cron(0 19 ? * SUN *)", 12),
    ],
)
@pytest.mark.parametrize("timezone", [None, "Europe/Berlin"])
def test_typical_count_is_that_of_the_scheduled_floors(template, up, down, hours, timezone):
    schedule = [{"schedule": up, "min": 4}, {"schedule": down, "min": 2}]
    if timezone is not None:
        if "rate" in up or "/" in up:
            return
        schedule = [{**floor, "timezone": timezone} for floor in schedule]
    scaling = {"min": 2, "max": 6, "schedule": schedule}
    (variant,) = variant_facts(template({"scaling": scaling}))
    assert (variant.least, variant.most) == (2, 6)
    assert variant.typical == pytest.approx(2 + 2 * hours / WEEK)


def test_schedule_is_of_the_wall_clock_of_its_zone(template):
    """What begins on Sunday at 23:00 in New York is on Monday at 3:00 in UTC."""
    floors = [
        {"schedule": "cron(0 23 ? * SUN *)", "min": 4, "timezone": "America/New_York"},
        {"schedule": "cron(0 4 ? * MON *)", "min": 2},
    ]
    (variant,) = variant_facts(template({"scaling": {"min": 2, "max": 6, "schedule": floors}}))
    assert variant.typical == pytest.approx(2 + 2 * 1 / WEEK)


def test_fixed_count_costs_the_same_always(template):
    cost, unknown = monthly_cost(template({"scaling": {"min": 3, "max": 3}}), "us-east-1")
    assert cost.least == cost.typical == cost.most == round(3 * 1.4084 * 730, 2)
    assert unknown == ()


@pytest.mark.parametrize(
    ("rollout", "least", "expected"),
    [
        ("canary", 2, ("canary", (50, 100), 10, 2)),
        ("linear", 4, ("linear", (25, 50, 75, 100), 20, 4)),
        ("rolling", 4, ("rolling", (25, 50, 75, 100), 20, 1)),
        ("all-at-once", 2, ("all-at-once", (100,), 5, 2)),
        ("canary", 1, ("all-at-once", (100,), 5, 1)),
    ],
)
def test_rollout_says_steps_waits_and_extra_instances(template, rollout, least, expected):
    endpoint = {"rollout": rollout, "scaling": {"min": least, "max": 8}}
    plan = rollout_plan(template(endpoint), 1)
    assert (plan.kind, plan.step_percents, plan.minutes, plan.extra_instances) == expected
