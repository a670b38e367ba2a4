"""One build in CodeBuild: its start, its log, its end, and its reason when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.errors import BuildFailedError

LINES = 50
RUNNING = "IN_PROGRESS"
SUCCEEDED = "SUCCEEDED"
ENDED = {
    "TIMED_OUT": "reached its time limit",
    "STOPPED": "was stopped",
    "FAULT": "met a fault of CodeBuild",
}
KILLED = "exit status 137"
"""CodeBuild's message for a command that a SIGKILL ended."""
LISTED = 100
"""Builds that CodeBuild describes in one call."""
LOG_GROUP = "/aws/sagemaker/TrainingJobs"


def job_text(clients: Clients, job: str) -> str:
    """Return the newest log lines of a training job, whose one stream begins with its name."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        streams = clients("logs").describe_log_streams(
            logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job}/", limit=1
        )["logStreams"]
    except (BotoCoreError, ClientError):
        return ""
    return stream_text(clients, LOG_GROUP, streams[0]["logStreamName"]) if streams else ""


def stream_text(clients: Clients, group: str | None, stream: str | None) -> str:
    """Return the newest lines of a log stream; empty when it is absent or cannot be read."""
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


def last_line(text: str) -> str:
    """Return a log's last line that is neither CodeBuild's `[Container]` line nor a command."""
    lines = [line.strip() for line in text.splitlines()]
    own = [line for line in lines if line and not line.startswith(("[Container]", "$ "))]
    return own[-1] if own else ""


def start(codebuild: Client, project: str, source: str) -> str:
    """Start a build of a source zip at `bucket/key`; return its id. Raises NotReadyError."""
    with calling(f"Starting a build in {project}"):
        answer = codebuild.start_build(
            projectName=project, sourceTypeOverride="S3", sourceLocationOverride=source
        )
        return str(answer["build"]["id"])


def stop(codebuild: Client, build_id: str) -> None:
    """Stop a build that runs; one that has ended is left as it is."""
    with calling(f"Stopping build {build_id}"):
        codebuild.stop_build(id=build_id)


def stop_all(codebuild: Client, project: str, variable: dict[str, str]) -> None:
    """Stop the running builds of a project that have an environment variable of this value."""
    with calling(f"Looking for running builds of {project}"):
        ids = codebuild.list_builds_for_project(projectName=project, sortOrder="DESCENDING")["ids"]
        builds = codebuild.batch_get_builds(ids=ids[:LISTED])["builds"] if ids else ()
    for build in builds:
        variables = build["environment"].get("environmentVariables", ())
        is_own = any(variable.items() <= other.items() for other in variables)
        if build["buildStatus"] == RUNNING and is_own:
            stop(codebuild, build["id"])


def follow(
    clients: Clients,
    build_id: str,
    *,
    every_seconds: float,
    on_line: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until a build has ended; `on_line` receives its log's last line at every look.

    Raises BuildFailedError with the build's reason.
    """
    while True:
        with calling(f"Following build {build_id}"):
            build = clients("codebuild").batch_get_builds(ids=[build_id])["builds"][0]
        if build["buildStatus"] != RUNNING:
            break
        on_line(last_line(_local_log(build)) or str(build.get("currentPhase", "")).lower())
        sleep(every_seconds)
    if build["buildStatus"] != SUCCEEDED:
        raise BuildFailedError(
            f"{_reason(clients, build).rstrip('.')}. The lock and the endpoints are as they were. "
            f"Log: {log_location(build)}"
        )


def log_location(build: Mapping[str, Any]) -> str:
    """Return where a build's log lies: a file, or a link into CloudWatch."""
    logs = build.get("logs", {})
    stream = f"CloudWatch {logs.get('groupName')}/{logs.get('streamName')}"
    return location(str(logs.get("deepLink") or stream))


def location(link: str) -> str:
    """Return a link, or the path of a link to a file, as the local cloud's is."""
    return unquote(urlsplit(link).path) if link.startswith("file://") else link


def last_log_line(clients: Clients, build: Mapping[str, Any]) -> str:
    """Return the last line of a build's own log; empty when there is none."""
    logs = build.get("logs", {})
    return last_line(_local_log(build)) or last_line(
        stream_text(clients, logs.get("groupName"), logs.get("streamName"))
    )


def _reason(clients: Clients, build: Mapping[str, Any]) -> str:
    contexts = [item for phase in build.get("phases", ()) for item in phase.get("contexts", ())]
    messages = [str(context["message"]) for context in contexts if context.get("message")]
    message, line = messages[-1] if messages else "", last_log_line(clients, build)
    last = f"the last line of its log: {line or 'none'}"
    if KILLED in message:
        return f"the build was killed ({KILLED}), as when memory runs out; {last}"
    if build["buildStatus"] == "FAILED":
        return line or message or "the build failed, and its log is empty"
    # The last line is of a step that went well.
    ended = ENDED.get(build["buildStatus"], f"ended as {build['buildStatus']}")
    return f"the build {ended}{f' ({message.strip()})' if message else ''}; {last}"


def _local_log(build: Mapping[str, Any]) -> str:
    path = Path(log_location(build))
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_absolute() else ""
    except OSError:
        return ""
