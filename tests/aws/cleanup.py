"""Deletes everything of the story from its account, found by its names and not by memory.

`roundhouse destroy` keeps what a user wants to keep: bucket, keys, images, the foundation. Running
builds end first, then the endpoints, then the other stacks, and last what these leave behind. A
KMS key is scheduled for deletion, and bills no more from then on.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from onboarding import names
from onboarding.arns import key_alias, signing_key_alias
from onboarding.platform import aws_partition
from roundhouse.aws.clients import bucket_exists
from roundhouse.deploy.builds import codebuild
from roundhouse.deploy.destroy import delete_stacks
from roundhouse.deploy.stacks import StackSummary, stack_summaries
from roundhouse.report import Report
from roundhouse.session import Session, open_session
from stacks.images import DOCKERFILES
from tests.aws.trial import Trial

ROUTES = ("cpu", "gpu", "fleet", "images")
PENDING_DAYS = 7
"""The least that KMS knows."""
WAIT_SECONDS, MOST_WAITS = 15.0, 240
"""An endpoint that is being updated takes no deletion: an hour is more than any rollout waits."""
SETTLED = ("DELETE_IN_PROGRESS", "REVIEW_IN_PROGRESS")


def session_of(trial: Trial) -> Session:
    """Return the story's own view of its account."""
    report = Report(console=Console(file=io.StringIO()))
    return open_session(trial.paths, report, trial.environment.name)


def clean(trial: Trial) -> None:
    """Delete everything, and fail for what is left."""
    session = session_of(trial)
    stop_builds(session)
    for part in ("endpoint-", ""):
        # Endpoints first: whatever stops later, what costs most is gone.
        wait_until_idle(session, part)
        if stacks := own_stacks(session, part):
            delete_stacks(session, stacks)
    for name in endpoints(session):
        session.clients("sagemaker").delete_endpoint(EndpointName=name)
    delete_storage(session)
    left = leftovers(session)
    assert not left, f"still in the account, delete them by hand: {', '.join(left)}"


def leftovers(session: Session) -> list[str]:
    """Return what of the story is in the account: what bills, and what the next run would meet."""
    bucket = names.artifact_bucket(session.environment)
    return [
        *(f"stack {stack.name}" for stack in own_stacks(session, "")),
        *(f"endpoint {name}" for name in endpoints(session)),
        *([f"bucket {bucket}"] if bucket_exists(session.clients("s3"), bucket) else []),
        *(f"repository {name}" for name in repositories(session)),
        *(f"KMS key {alias}" for alias in keys(session)),
    ]


def own_stacks(session: Session, part: str) -> list[StackSummary]:
    """Return the story's stacks whose names go on with `part`."""
    prefix = names.stack_name(session.environment, part)
    summaries = stack_summaries(session.clients("cloudformation"))
    return [stack for name, stack in sorted(summaries.items()) if name.startswith(prefix)]


def stop_builds(session: Session) -> None:
    """Stop executions, CodeBuild's builds and training jobs."""
    environment, clients = session.environment, session.clients
    region, account = environment.region, environment.account
    machine = f"{region}:{account}:stateMachine:{names.build_machine(environment)}"
    states = clients("stepfunctions")
    try:
        running = states.list_executions(
            stateMachineArn=f"arn:{aws_partition(region)}:states:{machine}", statusFilter="RUNNING"
        )["executions"]
    except states.exceptions.StateMachineDoesNotExist:
        running = []
    for execution in running:
        states.stop_execution(executionArn=execution["executionArn"], cause="tests/aws ends")
    builder = clients("codebuild")
    projects = [names.builder_project(environment, route) for route in ROUTES]
    for project in builder.batch_get_projects(names=projects)["projects"]:
        codebuild.stop_all(builder, project["name"], {})
    sagemaker = clients("sagemaker")
    for page in sagemaker.get_paginator("list_training_jobs").paginate(
        NameContains=names.training_job_prefix(environment), StatusEquals="InProgress"
    ):
        for job in page["TrainingJobSummaries"]:
            sagemaker.stop_training_job(TrainingJobName=job["TrainingJobName"])


def wait_until_idle(session: Session, part: str) -> None:
    """Wait for updates that a killed run left under way: CloudFormation ends them by itself."""
    for _ in range(MOST_WAITS):
        if not any(
            stack.status.endswith("_IN_PROGRESS") and stack.status not in SETTLED
            for stack in own_stacks(session, part)
        ):
            return
        time.sleep(0.5 if session.is_local else WAIT_SECONDS)


def delete_storage(session: Session) -> None:
    """Delete bucket, repositories, keys and log groups."""
    clients, environment = session.clients, session.environment
    s3, bucket = clients("s3"), names.artifact_bucket(environment)
    if bucket_exists(s3, bucket):
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            versions = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
            objects = [{"Key": item["Key"], "VersionId": item["VersionId"]} for item in versions]
            if objects:
                s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        s3.delete_bucket(Bucket=bucket)
    for repository in repositories(session):
        clients("ecr").delete_repository(repositoryName=repository, force=True)
    kms = clients("kms")
    for alias, key in keys(session).items():
        kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=PENDING_DAYS)
        kms.delete_alias(AliasName=alias)
    for name in log_groups(session):
        clients("logs").delete_log_group(logGroupName=name)


def log_groups(session: Session) -> Iterator[str]:
    """Yield the log groups of builds, functions and endpoints."""
    name = session.environment.name
    for prefix in (
        f"/aws/codebuild/roundhouse-{name}-",
        f"/aws/lambda/roundhouse-{name}-",
        f"/aws/sagemaker/Endpoints/{name}-",
    ):
        groups = session.clients("logs").describe_log_groups(logGroupNamePrefix=prefix)
        yield from (str(group["logGroupName"]) for group in groups["logGroups"])


def endpoints(session: Session) -> list[str]:
    """Return the endpoints of the story, with a stack or without."""
    prefix = names.endpoint_name(session.environment, "")
    pages = (
        session.clients("sagemaker").get_paginator("list_endpoints").paginate(NameContains=prefix)
    )
    found = [str(item["EndpointName"]) for page in pages for item in page["Endpoints"]]
    return [name for name in found if name.startswith(prefix)]


def repositories(session: Session) -> list[str]:
    """Return the image repositories of the story."""
    wanted = {names.repository(session.environment, image) for image in DOCKERFILES}
    pages = session.clients("ecr").get_paginator("describe_repositories").paginate()
    found = [str(item["repositoryName"]) for page in pages for item in page["repositories"]]
    return [name for name in found if name in wanted]


def keys(session: Session) -> dict[str, str]:
    """Return the story's own keys by alias, those that are not being deleted."""
    wanted = {key_alias(session.environment), signing_key_alias(session.environment)}
    pages = session.clients("kms").get_paginator("list_aliases").paginate()
    found: dict[str, Any] = {
        item["AliasName"]: item.get("TargetKeyId") for page in pages for item in page["Aliases"]
    }
    return {alias: str(key) for alias, key in found.items() if alias in wanted and key}
