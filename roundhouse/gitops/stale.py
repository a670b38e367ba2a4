"""Refuses a plan that is not what a deployment would do now, by content and never by ancestry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from roundhouse.deploy.stacks import Template
from roundhouse.errors import DeployFailedError, RoundhouseError
from roundhouse.gitops.plan_document import EnvironmentPlan, plan_id, read_plan_file
from roundhouse.gitops.template_changes import resource_changes, template_digest


def read_plan(path: Path, environment: str) -> EnvironmentPlan:
    """Read one environment's part of a plan. Raises RoundhouseError for a file that is none."""
    plan = read_plan_file(path)
    found = [item for item in plan.environments if item.environment == environment]
    if plan.faults or not found:
        known = ", ".join(item.environment for item in plan.environments) or "none"
        raise RoundhouseError(
            f"{path}: plans no change of environment {environment}; it plans {known}. Plan again "
            f"with --env {environment}."
        )
    return found[0]


def review_of(plan: EnvironmentPlan) -> dict[str, Any]:
    """Return the options of a deployment that refuse everything but a plan."""
    return {
        "before_building": partial(refuse_unplanned_builds, plan),
        "before_deploying": partial(require_planned, plan),
    }


def refuse_unplanned_builds(plan: EnvironmentPlan, models: Sequence[str]) -> None:
    """Raise DeployFailedError where engines are missing: a plan is of engines that are built."""
    missing = sorted({*models, *(engine.model for engine in plan.missing)})
    if missing:
        raise DeployFailedError(
            f"Refused before deploying: engines of {', '.join(missing)} are missing, and plan "
            f"{plan.id} can only be deployed with every engine built; run `roundhouse build`, "
            "commit the locks, then plan again."
        )


def require_planned(
    plan: EnvironmentPlan, before: Mapping[str, Template], after: Mapping[str, Template]
) -> None:
    """Raise DeployFailedError unless the deployment is the planned one, naming what moved.

    `before`: templates that are deployed; `after`: those to deploy; both by stack name.
    """
    digests = {
        name: (template_digest(before.get(name)), template_digest(template))
        for name, template in after.items()
        if resource_changes(before.get(name), template)
    }
    if plan_id(digests) == plan.id:
        return
    moved = _differences(plan.digests, digests)
    raise DeployFailedError(
        f"Refused before deploying: plan {plan.id} of {plan.environment} is not what would happen "
        f"now: {'; '.join(moved) or 'its content was edited'}. Nothing was changed; plan again, "
        "review it, then deploy that plan."
    )


def _differences(
    planned: Mapping[str, tuple[str, str]], now: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Return each stack that is not as planned, with what became of it."""
    found = []
    for stack in sorted(planned.keys() | now.keys()):
        if stack not in now:
            found.append(f"stack {stack} is deployed as planned already, or its files went back")
        elif stack not in planned:
            found.append(f"stack {stack} changes too")
        elif planned[stack][0] != now[stack][0]:
            found.append(f"the deployed template of stack {stack} changed since")
        elif planned[stack][1] != now[stack][1]:
            found.append(f"the files give stack {stack} another template")
    return found
