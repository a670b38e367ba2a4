"""What the local cloud's CloudFormation says a change does, beside what a plan says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from onboarding.names import artifact_bucket, stack_name
from onboarding.resolve import deployments
from onboarding.tree import Tree
from roundhouse.gitops.compare import change_of, other_stacks
from roundhouse.gitops.plan import environment_plan, observability_template
from roundhouse.gitops.plan_document import EnvironmentPlan, ResourceChange
from roundhouse.gitops.template_changes import ENDPOINT, Template
from roundhouse.paths import Paths
from roundhouse.session import Session
from stacks.endpoint.template import endpoint_template

REPLACED = ("new-version", "replaced")
NAME = "compared-with-a-plan"
Changes = dict[str, str]
"""What becomes of each resource, by logical id: Add, Remove, Modify or Replace."""


class PlannedChanges:
    """Plans of edited files against what a local cloud has, and its own change sets of the same."""

    def __init__(self, paths: Paths, environment: str, deployed: Mapping[str, Template]) -> None:
        self.paths, self.environment, self.deployed = paths, environment, deployed
        # Stacks beside the endpoints' follow from the environment's facts, and take seconds.
        self._other_stacks = cache(lambda text: other_stacks(paths, *self._specs[text]))
        self._specs: dict[str, tuple[EnvironmentSpec, Mapping[str, EnvironmentSpec]]] = {}

    def plan(self, tree: Tree) -> tuple[EnvironmentPlan, dict[str, Template]]:
        """Return the plan of a tree, and the templates that it deploys by stack name."""
        change = change_of(self.paths, tree, self.environment, None, self.deployed)

        def others(
            spec: EnvironmentSpec, environments: Mapping[str, EnvironmentSpec]
        ) -> Mapping[str, Template]:
            left_out = {"models", "endpoints", "gates"}
            facts = [
                item.model_dump(mode="json", exclude=left_out)
                for item in (spec, *environments.values())
            ]
            text = json.dumps(facts, sort_keys=True)
            self._specs.setdefault(text, (spec, environments))
            return self._other_stacks(text)

        found = deployments(tree, self.environment)
        templates: dict[str, Template] = {
            stack_name(change.environment, f"endpoint-{item.name}"): endpoint_template(
                item, change.image_uris
            )
            for item in found
        }
        templates |= observability_template(change.environment, found)
        templates |= others(change.environment, tree.environments)
        return environment_plan(change, others), templates


def planned_changes(plan: EnvironmentPlan, tree: Tree) -> dict[str, Changes]:
    """Return what a plan says of every stack that stays or comes, by stack name."""
    environment = tree.environments[plan.environment]
    changes = {
        stack_name(environment, f"endpoint-{item.name}"): item.resources
        for item in plan.endpoints
        if item.kind != "gone"
    }
    changes |= {item.name: item.resources for item in plan.stacks}
    return {stack: {item.id: _action(item) for item in found}
            for stack, found in changes.items() if found}  # fmt: skip


def _action(change: ResourceChange) -> str:
    if change.change == "added":
        return "Add"
    is_gone = not change.properties
    if change.change == "removed" or (change.change == "outage" and is_gone):
        return "Remove"
    return "Replace" if change.change in REPLACED or change.change == "outage" else "Modify"


def change_set(session: Session, stack: str, before: Template | None, after: Template) -> Changes:
    """Return what CloudFormation says that a template changes of a stack; nothing is changed.

    `before`: the template that is deployed, None for a new stack.
    """
    client, s3 = session.clients("cloudformation"), session.clients("s3")
    bucket, key = artifact_bucket(session.environment), f"templates/{stack}.json"
    # A template in the request itself may have 51,200 bytes.
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(_with_notes(before, after)))
    tags = [] if before is None else client.describe_stacks(StackName=stack)["Stacks"][0]["Tags"]
    client.create_change_set(
        StackName=stack,
        ChangeSetName=NAME,
        ChangeSetType="CREATE" if before is None else "UPDATE",
        TemplateURL=f"https://s3.amazonaws.com/{bucket}/{key}",
        Tags=tags,
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
    )
    found = client.describe_change_set(StackName=stack, ChangeSetName=NAME)
    client.delete_change_set(StackName=stack, ChangeSetName=NAME)
    if before is None:
        client.delete_stack(StackName=stack)
    actions = {
        item["ResourceChange"]["LogicalResourceId"]: _change_set_action(item["ResourceChange"])
        for item in found.get("Changes", ())
    }
    return {logical_id: action for logical_id, action in actions.items() if action is not None}


def _with_notes(before: Template | None, after: Template) -> dict[str, Any]:
    """Return a template with the metadata that is deployed: the CDK adds its own to every resource.

    CloudFormation takes another note for a change, and so whatever refers to its resource.
    """
    old = {} if before is None else before["Resources"]
    resources = {
        logical_id: {key: value for key, value in item.items() if key != "Metadata"}
        | {key: old[logical_id][key] for key in ("Metadata",)
           if key in old.get(logical_id, {})}
        for logical_id, item in after["Resources"].items()
    }  # fmt: skip
    return {**after, "Resources": resources}


def _change_set_action(change: Mapping[str, Any]) -> str | None:
    """Return what becomes of one resource; None where it only might change.

    Dynamic: the attribute of a changed resource, a role's ARN for one, stays the same.
    """
    if change["Action"] != "Modify":
        return str(change["Action"])
    known = [item for item in change["Details"] if item["Evaluation"] == "Static"]
    if not known:
        return None
    is_replaced = any(item["Target"].get("RequiresRecreation") == "Always" for item in known)
    return "Replace" if is_replaced else "Modify"


def outages(changes: Mapping[str, Changes], templates: Mapping[str, Template]) -> set[str]:
    """Return the stacks whose endpoint CloudFormation removes or replaces."""
    return {
        stack
        for stack, found in changes.items()
        for logical_id, action in found.items()
        if action in ("Remove", "Replace")
        and templates[stack]["Resources"].get(logical_id, {}).get("Type") == ENDPOINT
    }
