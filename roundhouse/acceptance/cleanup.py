"""Deletes everything of an acceptance run from its account, found by its names and not by memory.

The environment's name is in the name of all that a run makes. Running builds end first, then the
endpoints, then the other stacks, and last what a foundation leaves behind on purpose: bucket,
repositories, keys. A KMS key is scheduled for deletion, and bills no more from then on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition
from roundhouse.aws.clients import Client, Clients, bucket_exists, calling
from roundhouse.deploy.builds import codebuild
from roundhouse.deploy.destroy import delete_stacks
from roundhouse.deploy.stacks import StackSummary, stack_summaries
from roundhouse.errors import AwsError, DeployFailedError
from roundhouse.session import Session
from roundhouse.text import quantity
from stacks.access.arns import key_alias, signing_key_alias
from stacks.images import DOCKERFILES

ROUTES = ("cpu", "gpu", "fleet", "images")
PENDING_DAYS = 7
"""The least that KMS knows."""
AT_ONCE = 1000
"""Versions that S3 deletes in one call."""
WAIT_SECONDS, MOST_WAITS = 15.0, 240
"""An endpoint that is being updated takes no deletion: an hour is more than any rollout waits."""


def clean(session: Session, sleep: Callable[[float], None] = time.sleep) -> tuple[str, ...]:
    """Delete everything and return what was deleted. Raises DeployFailedError for what is left."""
    clients, environment = session.clients, session.environment
    deleted = list(stop_builds(clients, environment))
    for part in ("endpoint-", ""):
        # Endpoints first: whatever stops later, what costs most is gone.
        stacks = own_stacks(clients, environment, part)
        if stacks:
            _wait_until_idle(session, part, sleep)
            delete_stacks(session, own_stacks(clients, environment, part), sleep)
            deleted += [f"stack {stack.name}" for stack in stacks]
    deleted += delete_strays(clients, environment)
    deleted += _delete_storage(clients, environment)
    left = tuple(leftovers(clients, environment))
    if left:
        raise DeployFailedError(
            f"Still in the account: {', '.join(left)}; `roundhouse acceptance --clean` again, or "
            "delete them by hand."
        )
    return tuple(deleted)


def leftovers(clients: Clients, environment: EnvironmentSpec) -> Iterator[str]:
    """Yield what of a run is in the account: what bills, and what the next run would meet."""
    yield from (f"stack {stack.name}" for stack in own_stacks(clients, environment, ""))
    yield from (f"endpoint {name}" for name in _endpoints(clients, environment))
    bucket = names.artifact_bucket(environment)
    if bucket_exists(clients("s3"), bucket):
        yield f"bucket {bucket}"
    yield from (f"repository {name}" for name in _repositories(clients, environment))
    yield from (f"KMS key {alias}" for alias in _aliases(clients, environment))


def own_stacks(
    clients: Clients, environment: EnvironmentSpec, part: str
) -> tuple[StackSummary, ...]:
    """Return the run's stacks whose names go on with `part`."""
    prefix = names.stack_name(environment, part)
    summaries = stack_summaries(clients("cloudformation"))
    return tuple(stack for name, stack in sorted(summaries.items()) if name.startswith(prefix))


def stop_builds(clients: Clients, environment: EnvironmentSpec) -> Iterator[str]:
    """Stop executions, builds and training jobs, and yield each."""
    region, machine = environment.region, names.build_machine(environment)
    arn = (
        f"arn:{aws_partition(region)}:states:{region}:{environment.account}:stateMachine:{machine}"
    )
    client = clients("stepfunctions")
    with suppress(AwsError), calling(f"Looking for executions of {machine}"):
        running = client.list_executions(stateMachineArn=arn, statusFilter="RUNNING")["executions"]
        for execution in running:
            client.stop_execution(
                executionArn=execution["executionArn"], cause="Cleaned by roundhouse acceptance"
            )
            yield f"execution {execution['name']}"
    builder = clients("codebuild")
    projects = [names.builder_project(environment, route) for route in ROUTES]
    with calling("Looking for CodeBuild projects"):
        existing = builder.batch_get_projects(names=projects)["projects"]
    for project in existing:
        codebuild.stop_all(builder, project["name"], {})
    sagemaker = clients("sagemaker")
    with calling("Looking for running training jobs"):
        pages = sagemaker.get_paginator("list_training_jobs").paginate(
            NameContains=names.training_job_prefix(environment), StatusEquals="InProgress"
        )
        for page in pages:
            for job in page["TrainingJobSummaries"]:
                sagemaker.stop_training_job(TrainingJobName=job["TrainingJobName"])
                yield f"training job {job['TrainingJobName']}"


def delete_strays(clients: Clients, environment: EnvironmentSpec) -> Iterator[str]:
    """Delete endpoints of the run that no stack holds any more, and yield each."""
    for name in _endpoints(clients, environment):
        with calling(f"Deleting endpoint {name}"):
            clients("sagemaker").delete_endpoint(EndpointName=name)
        yield f"endpoint {name}"


def _wait_until_idle(session: Session, part: str, sleep: Callable[[float], None]) -> None:
    """Wait for updates that a killed run left under way: CloudFormation ends them by itself."""
    with session.report.step("Waiting for updates that are under way") as step:
        for _ in range(MOST_WAITS):
            stacks = own_stacks(session.clients, session.environment, part)
            busy = [
                stack.name
                for stack in stacks
                if stack.status.endswith("_IN_PROGRESS")
                and stack.status not in ("DELETE_IN_PROGRESS", "REVIEW_IN_PROGRESS")
            ]
            if not busy:
                step.finish("none")
                return
            step.update(", ".join(busy))
            sleep(WAIT_SECONDS if not session.is_local else 0.5)
        step.finish(f"{', '.join(busy)} still under way")


def _delete_storage(clients: Clients, environment: EnvironmentSpec) -> Iterator[str]:
    s3, bucket = clients("s3"), names.artifact_bucket(environment)
    if bucket_exists(s3, bucket):
        with calling(f"Deleting s3://{bucket}"):
            count = sum(_delete_versions(s3, bucket))
            s3.delete_bucket(Bucket=bucket)
        yield f"bucket {bucket} with {quantity(count, 'version')}"
    for repository in _repositories(clients, environment):
        with calling(f"Deleting repository {repository}"):
            clients("ecr").delete_repository(repositoryName=repository, force=True)
        yield f"repository {repository}"
    yield from _delete_keys(clients, environment)
    yield from _delete_log_groups(clients, environment)


def _delete_versions(s3: Client, bucket: str) -> Iterator[int]:
    """Delete every version and marker, a page at a time, and yield how many."""
    for page in s3.get_paginator("list_object_versions").paginate(
        Bucket=bucket, PaginationConfig={"PageSize": AT_ONCE}
    ):
        versions = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        objects = [{"Key": item["Key"], "VersionId": item["VersionId"]} for item in versions]
        if objects:
            s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        yield len(objects)


def _delete_keys(clients: Clients, environment: EnvironmentSpec) -> Iterator[str]:
    """Schedule the deletion of the run's own keys, and yield each; a given key is left alone."""
    kms = clients("kms")
    for alias, key in _aliases(clients, environment).items():
        with calling(f"Deleting KMS key {alias}"):
            kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=PENDING_DAYS)
            kms.delete_alias(AliasName=alias)
        yield f"KMS key {alias} (in {PENDING_DAYS} days)"


def _delete_log_groups(clients: Clients, environment: EnvironmentSpec) -> Iterator[str]:
    logs = clients("logs")
    prefixes = (
        f"/aws/codebuild/roundhouse-{environment.name}-",
        f"/aws/lambda/roundhouse-{environment.name}-",
        f"/aws/sagemaker/Endpoints/{environment.name}-",
    )
    for prefix in prefixes:
        with calling(f"Looking for log groups {prefix}*"):
            groups = logs.describe_log_groups(logGroupNamePrefix=prefix)["logGroups"]
        for group in groups:
            with calling(f"Deleting log group {group['logGroupName']}"):
                logs.delete_log_group(logGroupName=group["logGroupName"])
            yield f"log group {group['logGroupName']}"


def _endpoints(clients: Clients, environment: EnvironmentSpec) -> list[str]:
    prefix = names.endpoint_name(environment, "")
    with calling("Listing the endpoints"):
        pages = clients("sagemaker").get_paginator("list_endpoints").paginate(NameContains=prefix)
        found = [str(item["EndpointName"]) for page in pages for item in page["Endpoints"]]
    return [name for name in found if name.startswith(prefix)]


def _repositories(clients: Clients, environment: EnvironmentSpec) -> list[str]:
    wanted = {names.repository(environment, image) for image in DOCKERFILES}
    with calling("Listing the repositories"):
        pages = clients("ecr").get_paginator("describe_repositories").paginate()
        found = [str(item["repositoryName"]) for page in pages for item in page["repositories"]]
    return [name for name in found if name in wanted]


def _aliases(clients: Clients, environment: EnvironmentSpec) -> dict[str, str]:
    """Return the run's own keys by alias, those that are not being deleted."""
    wanted = {key_alias(environment), signing_key_alias(environment)}
    kms = clients("kms")
    with calling("Listing the KMS keys"):
        pages = kms.get_paginator("list_aliases").paginate()
        found: dict[str, Any] = {
            item["AliasName"]: item.get("TargetKeyId") for page in pages for item in page["Aliases"]
        }
    return {alias: str(key) for alias, key in found.items() if alias in wanted and key}
