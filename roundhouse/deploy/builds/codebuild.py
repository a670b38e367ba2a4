"""One build in CodeBuild: started, followed to its end, and its reason when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.deploy.builds.log import last_line, stream_text
from roundhouse.errors import BuildFailedError

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
class BuildOrder:
    """What CodeBuild is asked for: a project, the source zip at `bucket/key`, and the variables of
    this build.
    """

    project: str
    source: str
    variables: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Follower:
    """How a build is followed: how often CodeBuild is asked, and who hears its log's last line."""

    every_seconds: float
    on_line: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep


def start(codebuild: Client, order: BuildOrder) -> str:
    """Starts a build and returns its id. Raises NotReadyError."""
    with calling(f"Starting a build in {order.project}"):
        answer = codebuild.start_build(
            projectName=order.project,
            sourceTypeOverride="S3",
            sourceLocationOverride=order.source,
            environmentVariablesOverride=[
                {"name": name, "value": value, "type": "PLAINTEXT"}
                for name, value in order.variables.items()
            ],
        )
        build_id: str = answer["build"]["id"]
    return build_id


def stop(codebuild: Client, build_id: str) -> None:
    """Stops a build that runs; one that has ended is left as it is."""
    with calling(f"Stopping build {build_id}"):
        codebuild.stop_build(id=build_id)


def stop_all(codebuild: Client, project: str, variable: tuple[str, str]) -> None:
    """Stops the running builds of a project that carry a variable of this value."""
    with calling(f"Looking for running builds of {project}"):
        ids = codebuild.list_builds_for_project(projectName=project, sortOrder="DESCENDING")["ids"][
            :LISTED
        ]
        builds = codebuild.batch_get_builds(ids=ids)["builds"] if ids else ()
    for build in builds:
        carried = {
            (each["name"], each["value"])
            for each in build["environment"].get("environmentVariables", ())
        }
        if build["buildStatus"] == RUNNING and variable in carried:
            stop(codebuild, build["id"])


def follow(clients: Clients, build_id: str, follower: Follower) -> None:
    """Waits until a build has ended. Raises BuildFailedError with its reason."""
    build = _until_ended(clients("codebuild"), build_id, follower)
    if build["buildStatus"] != SUCCEEDED:
        raise BuildFailedError(_reason(clients, build))


def log_place(build: Mapping[str, Any]) -> str:
    """Where a build's log lies: a file, or a link into CloudWatch."""
    logs = build.get("logs", {})
    return place(
        str(logs.get("deepLink") or f"CloudWatch {logs.get('groupName')}/{logs.get('streamName')}")
    )


def place(link: str) -> str:
    """A link as a person takes it: the local cloud's leads to a file."""
    return unquote(urlsplit(link).path) if link.startswith("file://") else link


def own_words(clients: Clients, build: Mapping[str, Any]) -> str:
    """The last line of what a build itself has said so far; empty when nothing is known."""
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
    said, told = own_words(clients, build), _phase_message(build)
    if KILLED in told:
        why = f"the build was killed ({KILLED}), as when memory runs out; its last words: {said or 'none'}"
    elif build["buildStatus"] == "FAILED":
        why = said or told or "the build failed and left no word"
    else:
        # Its last words are of a step that went well.
        ended = ENDED.get(build["buildStatus"], "ended as " + str(build["buildStatus"]))
        why = f"the build {ended}{f' ({told.strip()})' if told else ''}; its last words: {said or 'none'}"
    return (
        f"{why.rstrip('.')}. The lock and the endpoints are as they were. Log: {log_place(build)}"
    )


def _local_log(build: Mapping[str, Any]) -> str:
    path = Path(log_place(build))
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
