"""Counts, cost and rollout, read from an endpoint's template."""

from __future__ import annotations

import pytest

from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.gitops.endpoint_facts import (
    declared_variants,
    monthly_cost,
    rollout_plan,
    variant_facts,
)
from stacks.endpoint_stack import endpoint_template
from tests.fixtures.many_models import many_models
from tests.unit.roundhouse.gitops.repository import ROOT

IMAGES = {"triton": "a", "python-server": "b", "python-server-gpu": "c"}


@pytest.fixture
def deployed(tmp_path):
    def make(endpoint):
        tree = many_models(
            ROOT, tmp_path / "tree", 1, environment="dev", changes={"endpoint": endpoint}
        )
        (deployment,) = deployments(read_tree(tree.root), "dev")
        return deployment

    return make


@pytest.fixture
def template(deployed):
    return lambda endpoint: endpoint_template(deployed(endpoint), IMAGES)


def test_model_that_scales_to_zero_costs_nothing_at_the_least(deployed):
    """Built, beside its copies an instance more is counted for those of an update."""
    deployment = deployed({"scaling": {"min": 0, "max": 2}})
    (declared,) = declared_variants(deployment)
    (built,) = variant_facts(endpoint_template(deployment, IMAGES))
    assert [(item.least, item.most) for item in (declared, built)] == [(0, 2), (0, 3)]


def test_schedules_move_the_bounds(template):
    schedule = [{"schedule": "cron(0 7 ? * MON-FRI *)", "min": 4, "max": 9},
                {"schedule": "cron(0 19 ? * MON-FRI *)", "min": 1}]  # fmt: skip
    scaling = {"min": 2, "max": 6, "schedule": schedule}
    (variant,) = variant_facts(template({"scaling": scaling}))
    assert (variant.least, variant.most) == (1, 9)


def test_fixed_count_costs_the_same_always(template):
    cost, unknown = monthly_cost(
        variant_facts(template({"scaling": {"min": 3, "max": 3}})), "us-east-1"
    )
    assert cost.least == cost.most == round(3 * 1.408 * 730, 2)
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
