"""Deletion of one endpoint's stack; its engines stay in the bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from onboarding.names import stack_name
from roundhouse.aws.clients import Client, calling
from roundhouse.deploy.stacks import NEVER_DEPLOYED, StackSummary, stack_summaries
from roundhouse.errors import DeployFailedError, RoundhouseError
from roundhouse.session import Session
from roundhouse.text import choices

EVERY_SECONDS = 2.0


def deployed_endpoints(session: Session) -> dict[str, StackSummary]:
    """Return the endpoints of the environment that have a stack, by their names in the tree."""
    prefix = stack_name(session.environment, "endpoint-")
    return {
        name.removeprefix(prefix): stack
        for name, stack in stack_summaries(session.clients("cloudformation")).items()
        if name.startswith(prefix)
    }


def destroy(
    session: Session, endpoint: str, sleep: Callable[[float], None] = time.sleep
) -> StackSummary:
    """Delete an endpoint's stack. Raises RoundhouseError for an unknown one.

    Raises DeployFailedError, with CloudFormation's reasons, where it cannot be deleted.
    """
    known = deployed_endpoints(session)
    if endpoint not in known:
        raise RoundhouseError(
            f"{endpoint}: no such endpoint is deployed in {session.environment.name}; "
            f"{choices(endpoint, known)}"
        )
    stack, client = known[endpoint], session.clients("cloudformation")
    if stack.status.endswith("_IN_PROGRESS") and stack.status not in NEVER_DEPLOYED:
        raise DeployFailedError(
            f"Stack {stack.name} is {stack.status}; wait until that has ended, then try again."
        )
    with session.report.step(f"Deleting {stack.name}") as step:
        with calling(f"Deleting stack {stack.name}"):
            client.update_termination_protection(
                StackName=stack.name, EnableTerminationProtection=False
            )
            client.delete_stack(StackName=stack.name)
        while (now := stack_summaries(client).get(stack.name)) is not None:
            if now.status == "DELETE_FAILED":
                reasons = "; ".join(failure_reasons(client, stack.name)) or now.reason
                raise DeployFailedError(
                    f"Stack {stack.name} was not deleted: {reasons}. Remove the cause, then run "
                    "the same command again."
                )
            step.update(now.status)
            sleep(EVERY_SECONDS)
    return stack


def failure_reasons(client: Client, stack: str) -> Iterator[str]:
    """Yield why resources of a stack could not be deleted, newest first."""
    with calling(f"Reading the events of stack {stack}"):
        for event in client.describe_stack_events(StackName=stack)["StackEvents"]:
            if event["ResourceStatus"] == "DELETE_FAILED" and "ResourceStatusReason" in event:
                yield f"{event['LogicalResourceId']}: {event['ResourceStatusReason']}"
