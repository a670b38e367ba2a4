"""The job of an engine's execution: a CodeBuild build, or a SageMaker training job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.deploy.builds import codebuild

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
LISTED = 100
"""The most jobs of one answer."""


def stop_training_jobs(sagemaker: Client, name_contains: str) -> None:
    """Stop all running training jobs whose names contain a text."""
    found: list[dict[str, Any]] = []
    page: dict[str, str] = {}
    with calling("Looking for running training jobs"):
        while True:
            answer = sagemaker.list_training_jobs(
                NameContains=name_contains, StatusEquals="InProgress", MaxResults=LISTED, **page
            )
            found.extend(answer["TrainingJobSummaries"])
            if not answer.get("NextToken"):
                break
            page = {"NextToken": answer["NextToken"]}
    for job in found:
        with calling(f"Stopping training job {job['TrainingJobName']}"):
            sagemaker.stop_training_job(TrainingJobName=job["TrainingJobName"])


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


def newest_job(events: Iterable[Mapping[str, Any]]) -> Job | None:
    """Return the newest job of an execution's history; `events`: the newest first."""
    for event in events:
        output = event.get("taskSucceededEventDetails", {}).get("output")
        found = None if output is None else _job(json.loads(output))
        if found is not None:
            return found
    return None


def failure_reason(clients: Clients, job: Job | None, recorded: str) -> str:
    """Return why a job failed: the recorded reason, or where that only names a command, its log."""
    if job is None or not recorded.startswith(NAMES_A_COMMAND):
        return recorded
    return last_log_line(clients, job) or recorded


def last_log_line(clients: Clients, job: Job) -> str:
    """Return the last line of a job's log; empty when there is none."""
    if job.kind == "build":
        return codebuild.last_log_line(clients, {"logs": job.logs})
    return codebuild.last_line(codebuild.job_text(clients, LOG_GROUP, job.name))


def progress(clients: Clients, job: Job | None) -> str:
    """Return where an engine is, in a few words: the last line of its job, or its job's state."""
    if job is None:
        return "starting"
    if job.has_ended:
        return "waits for capacity, then starts again"
    return last_log_line(clients, job) or job.state.lower()


def _job(output: Any) -> Job | None:
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
