"""Deletion of endpoint stacks, one or all of an environment; engines stay in the bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.names import stack_name
from onboarding.promotion import read_promotion
from onboarding.workload import endpoint_deployments
from roundhouse.aws.clients import Client, calling
from roundhouse.deploy.stacks import NEVER_DEPLOYED, StackSummary, stack_summaries
from roundhouse.errors import DeployFailedError, RoundhouseError
from roundhouse.paths import Paths
from roundhouse.session import Session, valid_tree
from roundhouse.text import choices, quantity

EVERY_SECONDS = 2.0
OF_ENDPOINTS, OF_BUILDS = ("observability",), ("builds", "images")
"""Parts of an environment that go with its endpoints, and those that go on request."""


def deployed_endpoints(session: Session) -> dict[str, StackSummary]:
    """Return the endpoints of the environment that have a stack, by their names in the tree."""
    prefix = stack_name(session.environment, "endpoint-")
    return {
        name.removeprefix(prefix): stack
        for name, stack in stack_summaries(session.clients("cloudformation")).items()
        if name.startswith(prefix)
    }


def environment_stacks(session: Session, *, builds: bool) -> tuple[StackSummary, ...]:
    """Return the stacks of an environment that can go: endpoints, dashboards, `builds` too.

    Never its foundation, which holds engines, key, images and topic.
    """
    summaries = stack_summaries(session.clients("cloudformation"))
    parts = OF_ENDPOINTS + (OF_BUILDS if builds else ())
    own = {stack_name(session.environment, part) for part in parts}
    prefix = stack_name(session.environment, "endpoint-")
    return tuple(
        stack for name, stack in sorted(summaries.items()) if name in own or name.startswith(prefix)
    )


def destroy(session: Session, endpoint: str) -> None:
    """Delete an endpoint's stack. Raises RoundhouseError for an unknown one.

    Raises DeployFailedError, with CloudFormation's reasons, where it cannot be deleted.
    """
    known = deployed_endpoints(session)
    if endpoint not in known:
        raise RoundhouseError(
            f"{endpoint}: no such endpoint is deployed in {session.environment.name}; "
            f"{choices(endpoint, known)}"
        )
    delete_stacks(session, [known[endpoint]])


def delete_stacks(
    session: Session,
    stacks: Sequence[StackSummary],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Delete stacks at the same time, and wait until they are gone.

    What an interrupted deletion began is waited for. Raises DeployFailedError: before anything is
    deleted, for a stack that is being updated; at the end, for those that could not be deleted.
    """
    client = session.clients("cloudformation")
    busy = [stack for stack in stacks if is_changing(stack)]
    if busy:
        listed = ", ".join(f"{stack.name} is {stack.status}" for stack in busy)
        raise DeployFailedError(
            f"Nothing was deleted: stack {listed}; wait until that has ended, then try again."
        )
    title = stacks[0].name if len(stacks) == 1 else quantity(len(stacks), "stack")
    with session.report.step(f"Deleting {title}") as step:
        try:
            for stack in stacks:
                if stack.status != "DELETE_IN_PROGRESS":
                    with calling(f"Deleting stack {stack.name}"):
                        client.update_termination_protection(
                            StackName=stack.name, EnableTerminationProtection=False
                        )
                        client.delete_stack(StackName=stack.name)
            failed = _wait(client, [stack.name for stack in stacks], step.update, sleep)
        except KeyboardInterrupt:
            session.report.print(
                "– CloudFormation finishes the deletions that have begun; the same command again "
                "waits for them and deletes the rest."
            )
            raise
    if failed:
        causes = [_failure(client, stack) for stack in failed]
        raise DeployFailedError(
            f"{'; '.join(causes)}. Remove the cause, then run the same command again."
        )


def unpromoted_models(paths: Paths, environment: str) -> dict[str, tuple[str, ...]]:
    """Return the models whose files another environment is still to receive, by environment.

    `paths` are those of the files as they are. What a promotion names was copied before it was
    written. Raises FaultsError, LockError.
    """
    tree = valid_tree(paths)
    waiting: dict[str, tuple[str, ...]] = {}
    for name in sorted(tree.views):
        promotion = read_promotion(paths.tree, name)
        received = set[str]()
        if promotion is not None:
            received |= promotion.archives.keys()
            received |= {item.checkpoint_key for item in promotion.checkpoints.values()}
        models = {
            artifact.model
            for endpoint in endpoint_deployments(tree, name)
            for artifact in endpoint.artifacts
            if artifact.held_by == environment and artifact.key not in received
        }
        if models:
            waiting[name] = tuple(sorted(models))
    return waiting


def require_received(paths: Paths, environment: str) -> None:
    """Raise DeployFailedError while another environment is still to receive engines of this one."""
    waiting = unpromoted_models(paths, environment)
    if waiting:
        listed = "; ".join(f"{name}: {', '.join(models)}" for name, models in waiting.items())
        first = next(iter(waiting))
        raise DeployFailedError(
            f"Refused: engines or checkpoints of {environment} are still to be promoted to "
            f"{listed}. Promote them (`roundhouse promote --from {environment} --to {first}`), or "
            f"remove `promotes_from` or the models from environments/{first}.yaml, then try again."
        )


def kept_storage(environment: EnvironmentSpec) -> Iterator[str]:
    """Yield what stays in the account and costs money: bucket, images, key, logs."""
    yield f"s3://{names.artifact_bucket(environment)} with every engine"
    yield "container images in ECR"
    if environment.kms_key_arn is None:
        yield "the KMS key"
    yield "log groups"


def is_changing(stack: StackSummary) -> bool:
    """Return whether CloudFormation creates or updates a stack, which it does not delete then."""
    is_busy = stack.status.endswith("_IN_PROGRESS") and stack.status != "DELETE_IN_PROGRESS"
    return is_busy and stack.status not in NEVER_DEPLOYED


def _wait(
    client: Client,
    stack_names: Sequence[str],
    show: Callable[[str], None],
    sleep: Callable[[float], None],
) -> list[StackSummary]:
    """Wait until every stack is gone or could not be deleted; return the latter."""
    while True:
        present = stack_summaries(client)
        left = [present[name] for name in stack_names if name in present]
        if all(stack.status == "DELETE_FAILED" for stack in left):
            return left
        show(f"{len(stack_names) - len(left)} of {len(stack_names)} gone")
        sleep(EVERY_SECONDS)


def _failure(client: Client, stack: StackSummary) -> str:
    """Return why a stack was not deleted: its resources' reasons, newest first, or its own."""
    with calling(f"Reading the events of stack {stack.name}"):
        events = client.describe_stack_events(StackName=stack.name)["StackEvents"]
    reasons = [
        f"{event['LogicalResourceId']}: {event['ResourceStatusReason']}"
        for event in events
        if event["ResourceStatus"] == "DELETE_FAILED" and "ResourceStatusReason" in event
    ]
    return f"Stack {stack.name} was not deleted: {'; '.join(reasons) or stack.reason}"
