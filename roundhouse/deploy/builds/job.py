"""The job that an engine's execution has under way, as its history tells it: a CodeBuild build, or
a training job.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from roundhouse.aws.clients import Clients
from roundhouse.deploy.builds import codebuild, training_jobs

NAMES_A_COMMAND = "Error while executing command"
"""What CodeBuild says of a build that left no reason of its own."""
ENDED = ("FAILED", "FAULT", "STOPPED", "TIMED_OUT", "Failed", "Stopped")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One try at an engine: `state` in the service's words, `logs` as CodeBuild has them."""

    kind: str
    name: str
    state: str
    has_ended: bool
    logs: Mapping[str, Any]


def job_of(events: Iterable[Mapping[str, Any]]) -> Job | None:
    """The job of the newest call that tells of one; `events` are an execution's history, the newest
    first.
    """
    for event in events:
        output = event.get("taskSucceededEventDetails", {}).get("output")
        found = None if output is None else _told(json.loads(output))
        if found is not None:
            return found
    return None


def reason(clients: Clients, job: Job | None, told: str) -> str:
    """Why a job failed: what was `told`, or where that only names a command, the last of the job's
    own words.
    """
    said = own_words(clients, job) if job is not None and told.startswith(NAMES_A_COMMAND) else ""
    return said or told


def own_words(clients: Clients, job: Job) -> str:
    """The last line of what a job has said so far; empty when nothing is known."""
    if job.kind == "build":
        return codebuild.own_words(clients, {"logs": job.logs})
    return training_jobs.own_words(clients, job.name)


def progress(clients: Clients, job: Job | None) -> str:
    """Where an engine is, in a few words: the last line of its job, or its job's state."""
    if job is None:
        return "starting"
    if job.has_ended:
        return "waits for capacity, then starts again"
    return own_words(clients, job) or job.state.lower()


def _told(output: Any) -> Job | None:
    if not isinstance(output, Mapping):
        return None
    builds = [output["Build"]] if "Build" in output else output.get("Builds") or []
    if builds:
        return _build(builds[0])
    if "TrainingJobArn" in output:
        status = str(output.get("TrainingJobStatus", "InProgress"))
        return Job(
            kind="training-job",
            name=str(output["TrainingJobArn"]).rpartition("/")[2],
            state=str(output.get("SecondaryStatus", "Starting")),
            has_ended=status in ENDED,
            logs={},
        )
    return None


def _build(build: Mapping[str, Any]) -> Job:
    logs = build.get("Logs") or {}
    named = {"deepLink": "DeepLink", "groupName": "GroupName", "streamName": "StreamName"}
    return Job(
        kind="build",
        name=str(build["Id"]),
        state=str(build.get("CurrentPhase", "submitted")),
        has_ended=build.get("BuildStatus") in ENDED,
        logs={ours: logs[theirs] for ours, theirs in named.items() if theirs in logs},
    )
