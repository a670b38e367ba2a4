"""One build in CodeBuild: its start, its log, its end, and its reason when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.errors import BuildFailedError

LINES = 50


def stream_text(clients: Clients, group: str | None, stream: str | None) -> str:
    """The newest lines of a stream; empty while there is none, or when it cannot be read."""
    from botocore.exceptions import BotoCoreError, ClientError

    if group is None or stream is None:
        return ""
    try:
        events = clients("logs").get_log_events(
            logGroupName=group, logStreamName=stream, limit=LINES
        )["events"]
    except (BotoCoreError, ClientError):
        return ""
    return "\n".join(str(event["message"]).rstrip("\n") for event in events)


def job_text(clients: Clients, group: str, job: str) -> str:
    """The newest lines of a training job, whose one stream begins with its name."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        streams = clients("logs").describe_log_streams(
            logGroupName=group, logStreamNamePrefix=f"{job}/", limit=1
        )["logStreams"]
    except (BotoCoreError, ClientError):
        return ""
    return stream_text(clients, group, streams[0]["logStreamName"]) if streams else ""


def last_line(text: str) -> str:
    """The last line of the build's own words.

    CodeBuild's `[Container]` lines and commands stand around them.
    """
    lines = [line.strip() for line in text.splitlines()]
    return next(
        (line for line in reversed(lines) if line and not line.startswith(("[Container]", "$ "))),
        "",
    )


RUNNING = "IN_PROGRESS"
SUCCEEDED = "SUCCEEDED"
ENDED = {
    "TIMED_OUT": "reached its time limit",
    "STOPPED": "was stopped",
    "FAULT": "met a fault of CodeBuild",
}
KILLED = "exit status 137"
"""What CodeBuild says of a command that a SIGKILL ended."""
LISTED = 100
"""Builds that CodeBuild describes in one call."""


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """A build to start: a project, its source zip at `bucket/key`, and its variables."""

    project: str
    source: str
    variables: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Follower:
    """How a build is followed: seconds between two looks, and what receives its log's last line."""

    every_seconds: float
    on_line: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep


def start(codebuild: Client, request: BuildRequest) -> str:
    """Start a build and returns its id. Raises NotReadyError."""
    with calling(f"Starting a build in {request.project}"):
        answer = codebuild.start_build(
            projectName=request.project,
            sourceTypeOverride="S3",
            sourceLocationOverride=request.source,
            environmentVariablesOverride=[
                {"name": name, "value": value, "type": "PLAINTEXT"}
                for name, value in request.variables.items()
            ],
        )
        build_id: str = answer["build"]["id"]
    return build_id


def stop(codebuild: Client, build_id: str) -> None:
    """Stop a build that runs; one that has ended is left as it is."""
    with calling(f"Stopping build {build_id}"):
        codebuild.stop_build(id=build_id)


def stop_all(codebuild: Client, project: str, variable: tuple[str, str]) -> None:
    """Stop the running builds of a project that carry a variable of this value."""
    with calling(f"Looking for running builds of {project}"):
        ids = codebuild.list_builds_for_project(projectName=project, sortOrder="DESCENDING")["ids"][
            :LISTED
        ]
        builds = codebuild.batch_get_builds(ids=ids)["builds"] if ids else ()
    for build in builds:
        carried = {
            (item["name"], item["value"])
            for item in build["environment"].get("environmentVariables", ())
        }
        if build["buildStatus"] == RUNNING and variable in carried:
            stop(codebuild, build["id"])


def follow(clients: Clients, build_id: str, follower: Follower) -> None:
    """Wait until a build has ended. Raises BuildFailedError with its reason."""
    build = _until_ended(clients("codebuild"), build_id, follower)
    if build["buildStatus"] != SUCCEEDED:
        raise BuildFailedError(_reason(clients, build))


def log_location(build: Mapping[str, Any]) -> str:
    """Return where a build's log lies: a file, or a link into CloudWatch."""
    logs = build.get("logs", {})
    return location(
        str(logs.get("deepLink") or f"CloudWatch {logs.get('groupName')}/{logs.get('streamName')}")
    )


def location(link: str) -> str:
    """Return a link, or the path of a link to a file, as the local cloud's is."""
    return unquote(urlsplit(link).path) if link.startswith("file://") else link


def last_log_line(clients: Clients, build: Mapping[str, Any]) -> str:
    """Return the last line of a build's own log; empty when there is none."""
    logs = build.get("logs", {})
    return last_line(_local_log(build)) or last_line(
        stream_text(clients, logs.get("groupName"), logs.get("streamName"))
    )


def _until_ended(codebuild: Client, build_id: str, follower: Follower) -> Mapping[str, Any]:
    while True:
        with calling(f"Following build {build_id}"):
            build: Mapping[str, Any] = codebuild.batch_get_builds(ids=[build_id])["builds"][0]
        if build["buildStatus"] != RUNNING:
            return build
        follower.on_line(last_line(_local_log(build)) or str(build.get("currentPhase", "")).lower())
        follower.sleep(follower.every_seconds)


def _reason(clients: Clients, build: Mapping[str, Any]) -> str:
    line, message = last_log_line(clients, build), _phase_message(build)
    if KILLED in message:
        why = (
            f"the build was killed ({KILLED}), as when memory runs out; "
            f"the last line of its log: {line or 'none'}"
        )
    elif build["buildStatus"] == "FAILED":
        why = line or message or "the build failed, and its log is empty"
    else:
        # The last line is of a step that went well.
        ended = ENDED.get(build["buildStatus"], "ended as " + str(build["buildStatus"]))
        detail = f" ({message.strip()})" if message else ""
        why = f"the build {ended}{detail}; the last line of its log: {line or 'none'}"
    return (
        f"{why.rstrip('.')}. The lock and the endpoints are as they were. Log: "
        f"{log_location(build)}"
    )


def _local_log(build: Mapping[str, Any]) -> str:
    path = Path(log_location(build))
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_absolute() else ""
    except OSError:
        return ""


def _phase_message(build: Mapping[str, Any]) -> str:
    contexts = [
        context for phase in build.get("phases", ()) for context in phase.get("contexts", ())
    ]
    return next(
        (str(context["message"]) for context in reversed(contexts) if context.get("message")), ""
    )
