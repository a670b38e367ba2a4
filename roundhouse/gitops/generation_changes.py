"""What a change does to a text generator's endpoint: resources, rollout, scaling, cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from onboarding.generation_resolve import generation_deployments
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.tree import Tree
from roundhouse.gitops.endpoint_facts import (
    monthly_cost,
    resources_of,
    rollout_plan,
    scaling_changes,
)
from roundhouse.gitops.plan_document import CostChange, EndpointChange, ResourceChange, RolloutPlan
from roundhouse.gitops.template_changes import (
    Template,
    is_outage,
    permission_changes,
    resource_changes,
)
from stacks.endpoint.change import COMPONENT, update_steps
from stacks.generation.faults import generation_faults

PERCENT = 100.0


def tree_generators(tree: Tree | None, environment: str) -> dict[str, GenerationDeployment]:
    """Return the text generators of an environment by name; none of a tree that is not there."""
    if tree is None or tree.faults:
        return {}
    return {item.name: item for item in generation_deployments(tree, environment)}


def generation_change(
    region: str,
    endpoint: str,
    deployment: GenerationDeployment | None,
    before: Template | None,
    after: Template | None,
) -> EndpointChange | None:
    """Return what becomes of an endpoint; None where nothing of its stack changes.

    `deployment` and `after` None: no file describes it any more.
    """
    resources = resource_changes(before, after)
    faults = () if deployment is None else generation_faults(deployment)
    if not (resources or faults):
        return None
    costs = [None if side is None else monthly_cost(side, region) for side in (before, after)]
    return EndpointChange(
        name=endpoint,
        kind="new" if before is None else "gone" if after is None else "changed",
        outage=is_outage(resources),
        is_estimated=False,
        resources=resources,
        permissions=permission_changes(before, after),
        rollout=_rollout(before, after, resources),
        scaling=scaling_changes(before, after),
        cost=CostChange(
            before=None if costs[0] is None else costs[0][0],
            after=None if costs[1] is None else costs[1][0],
            unknown=tuple(sorted({name for cost in costs if cost for name in cost[1]})),
        ),
        faults=faults,
    )


def _rollout(
    before: Template | None, after: Template | None, resources: tuple[ResourceChange, ...]
) -> RolloutPlan | None:
    """Return how copies are replaced, or where the endpoint config changes its instances."""
    if not (before and after and before["Resources"] and after["Resources"]):
        return None
    changed = {item.type for item in resources if item.change in ("new-version", "in-place")}
    components = list(resources_of(after, COMPONENT))
    if "AWS::SageMaker::EndpointConfig" in changed or not components:
        is_new = any(item.change == "new-version" for item in resources)
        return rollout_plan(after, len(update_steps(before, after))) if is_new else None
    rolling = [item for item in components if "DeploymentConfig" in item["Properties"]]
    return (
        _component_rollout(rolling[0]["Properties"]) if COMPONENT in changed and rolling else None
    )


def _component_rollout(component: Mapping[str, Any]) -> RolloutPlan:
    """Return the batches of an inference component; extra instances hold one batch."""
    policy = component["DeploymentConfig"]["RollingUpdatePolicy"]
    percent = float(policy["MaximumBatchSize"]["Value"])
    steps = math.ceil(PERCENT / percent)
    return RolloutPlan(
        kind="rolling copies",
        step_percents=tuple(min(PERCENT, percent * number) for number in range(1, steps + 1)),
        minutes=steps * policy["WaitIntervalInSeconds"] / 60,
        extra_instances=1,
    )
