"""The whole output of every build of an environment, from CodeBuild, CloudWatch or a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onboarding.names import builder_project, training_job_prefix
from roundhouse.aws.clients import Clients, calling
from roundhouse.deploy.builds.codebuild import log_location
from roundhouse.deploy.builds.execution import LOG_GROUP
from roundhouse.session import Session

ROUTES = ("cpu", "gpu", "fleet", "images")
MOST_PAGES = 200


def build_logs(session: Session) -> Iterator[tuple[str, str]]:
    """Yield the name and output of each build and training job, the newest of a project first."""
    codebuild, environment = session.clients("codebuild"), session.environment
    projects = [builder_project(environment, route) for route in ROUTES]
    with calling("Looking for CodeBuild projects"):
        existing = codebuild.batch_get_projects(names=projects)["projects"]
    for project in existing:
        with calling(f"Listing the builds of {project['name']}"):
            ids = codebuild.list_builds_for_project(
                projectName=project["name"], sortOrder="DESCENDING"
            )["ids"]
            builds = codebuild.batch_get_builds(ids=ids[:100])["builds"] if ids else ()
        for build in builds:
            yield _file_name(build["id"]), _codebuild_log(session.clients, build)
    with calling("Listing the training jobs"):
        pages = session.clients("sagemaker").get_paginator("list_training_jobs")
        jobs = [
            job["TrainingJobName"]
            for page in pages.paginate(NameContains=training_job_prefix(environment))
            for job in page["TrainingJobSummaries"]
        ]
    for job in jobs:
        yield job, _job_log(session.clients, job)


def stream_log(clients: Clients, group: str, stream: str) -> str:
    """Return a whole log stream, from its first line on."""
    client, token, lines = clients("logs"), None, []
    with calling(f"Reading {group}/{stream}"):
        for _ in range(MOST_PAGES):
            page = client.get_log_events(
                logGroupName=group,
                logStreamName=stream,
                startFromHead=True,
                **({} if token is None else {"nextToken": token}),
            )
            lines += [str(event["message"]).rstrip("\n") for event in page["events"]]
            if not page["events"] or page["nextForwardToken"] == token:
                break
            token = page["nextForwardToken"]
    return "\n".join(lines)


def _codebuild_log(clients: Clients, build: dict[str, object]) -> str:
    place = log_location(build)
    if place.startswith("/"):
        try:
            return Path(place).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return f"{place}: {error.strerror}"
    logs = build.get("logs")
    if not isinstance(logs, dict) or "streamName" not in logs:
        return "no log"
    return stream_log(clients, str(logs["groupName"]), str(logs["streamName"]))


def _job_log(clients: Clients, job: str) -> str:
    with calling(f"Looking for the log of training job {job}"):
        streams = clients("logs").describe_log_streams(
            logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job}/", limit=1
        )["logStreams"]
    return stream_log(clients, LOG_GROUP, streams[0]["logStreamName"]) if streams else "no log"


def _file_name(build_id: object) -> str:
    return str(build_id).replace(":", "-").replace("/", "-")
