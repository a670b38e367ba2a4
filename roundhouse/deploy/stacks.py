"""The CloudFormation stacks of an environment: status, template, readiness for an update."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.deployment import DeployedEndpoint
from onboarding.yaml_text import load_yaml
from roundhouse.aws.clients import Client, calling, pages
from roundhouse.errors import DeployFailedError
from roundhouse.session import Session

EVERY_SECONDS = 2.0
READERS = 8
SHARED_PARTS = ("foundation", "images", "builds", "access", "observability")
NEVER_DEPLOYED = (
    "REVIEW_IN_PROGRESS",
    "CREATE_FAILED",
    "ROLLBACK_FAILED",
    "ROLLBACK_COMPLETE",
    "DELETE_COMPLETE",
)
CONTINUE = (
    "its last update and the rollback of it failed. Remove the cause (the reason above; an alarm "
    "in ALARM also stops a rollback), then `aws cloudformation continue-update-rollback "
    "--stack-name {name}`; if one resource can never be rolled back, add `--resources-to-skip "
    "LOGICAL_ID`. Wait for UPDATE_ROLLBACK_COMPLETE, then deploy again"
)
DELETE = (
    "its creation and the rollback of it failed, so some resources are left. Remove the cause, "
    "then `aws cloudformation update-termination-protection --no-enable-termination-protection "
    "--stack-name {name}` and `aws cloudformation delete-stack --stack-name {name}`; then deploy "
    "again"
)
WAYS_OUT = {
    "UPDATE_ROLLBACK_FAILED": CONTINUE,
    "ROLLBACK_FAILED": DELETE,
    "CREATE_FAILED": DELETE,
    "DELETE_FAILED": "its deletion failed. Remove the cause, then `aws cloudformation delete-stack "
    "--stack-name {name}` again (with `--retain-resources LOGICAL_ID` for a resource that must "
    "stay); then deploy again",
}
"""Statuses in which CloudFormation takes no update."""

Template = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StackSummary:
    """One stack as CloudFormation lists it."""

    name: str
    status: str
    reason: str


def endpoint_stack_name(deployment: DeployedEndpoint) -> str:
    """Return the name of an endpoint's stack."""
    return names.stack_name(deployment.environment, f"endpoint-{deployment.name}")


def stack_summaries(client: Client) -> dict[str, StackSummary]:
    """Return the stacks of the account and region by name, without those that are deleted."""
    found: dict[str, StackSummary] = {}
    with calling("Listing the stacks"):
        for stack in pages(client, "list_stacks", "StackSummaries"):
            # Newest first: a name that was deleted and created again is listed once more.
            if stack["StackStatus"] != "DELETE_COMPLETE":
                summary = StackSummary(
                    name=stack["StackName"],
                    status=stack["StackStatus"],
                    reason=" ".join(str(stack.get("StackStatusReason", "")).split()),
                )
                found.setdefault(summary.name, summary)
    return found


def require_updatable_stacks(session: Session) -> None:
    """Raise DeployFailedError for a stack whose status takes no update, with the way out.

    A stack whose first creation was rolled back holds nothing: the cdk command line deletes it and
    creates it again, for which its termination protection is taken off here.
    """
    client = session.clients("cloudformation")
    summaries = stack_summaries(client)
    own = [names.stack_name(session.environment, part) for part in SHARED_PARTS]
    own += map(endpoint_stack_name, session.endpoint_deployments())
    stacks = [summaries[name] for name in own if name in summaries]
    blocked = [stack for stack in stacks if stack.status in WAYS_OUT]
    if blocked:
        lines = []
        for stack in blocked:
            reason = f" ({stack.reason.rstrip('.')})" if stack.reason else ""
            way_out = WAYS_OUT[stack.status].format(name=stack.name)
            lines.append(f"stack {stack.name} is {stack.status}{reason}: {way_out}.")
        raise DeployFailedError("Refused before deploying: " + "\n".join(lines))
    for stack in stacks:
        if stack.status == "ROLLBACK_COMPLETE":
            session.report.print(
                f"– Stack {stack.name} is ROLLBACK_COMPLETE: its first creation failed"
                f"{f' ({stack.reason})' if stack.reason else ''}. It is deleted and created again."
            )
            with calling(f"Taking the termination protection off {stack.name}"):
                client.update_termination_protection(
                    StackName=stack.name, EnableTerminationProtection=False
                )


def deployed_templates(session: Session, stack_names: Sequence[str]) -> dict[str, Template]:
    """Return the templates of those of the stacks that are deployed, by name.

    Waits for an update that is under way.
    """
    client = session.clients("cloudformation")
    summaries = stack_summaries(client) if stack_names else {}
    deployed = [
        name
        for name in stack_names
        if name in summaries and summaries[name].status not in NEVER_DEPLOYED
    ]
    busy = [name for name in deployed if summaries[name].status.endswith("_IN_PROGRESS")]
    if busy:
        _wait(session, client, busy)
    return dict(read_templates(client, deployed))


def environment_templates(session: Session) -> dict[str, Template]:
    """Return the template of every stack of the environment that is deployed, by name."""
    prefix = names.stack_name(session.environment, "")
    parts = {f"{prefix}{part}" for part in SHARED_PARTS}
    own = [
        name
        for name in stack_summaries(session.clients("cloudformation"))
        if name in parts or name.startswith(f"{prefix}endpoint-")
    ]
    return deployed_templates(session, sorted(own))


def read_templates(client: Client, stack_names: Sequence[str]) -> Iterator[tuple[str, Template]]:
    """Return the names of these stacks with the templates that are deployed."""
    with ThreadPoolExecutor(READERS) as readers:
        yield from zip(
            stack_names,
            readers.map(lambda name: _read_template(client, name), stack_names),
            strict=True,
        )


def _wait(session: Session, client: Client, stack_names: Sequence[str]) -> None:
    with session.report.step("Waiting for the updates that are under way") as step:
        for name in stack_names:
            step.update(name)
            while _status(client, name).endswith("_IN_PROGRESS"):
                time.sleep(EVERY_SECONDS)


def _status(client: Client, name: str) -> str:
    with calling(f"Looking at stack {name}"):
        return str(client.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"])


def _read_template(client: Client, name: str) -> Template:
    with calling(f"Reading the template of stack {name}"):
        body = client.get_template(StackName=name)["TemplateBody"]
    if isinstance(body, str):
        # The cdk command line sends a template that is not an asset as YAML, which boto3 leaves
        # as text.
        template: Template = json.loads(body) if body.lstrip().startswith("{") else load_yaml(body)
        return template
    return dict(body)
