"""The job of an engine's execution: a CodeBuild build, or a SageMaker training job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from roundhouse.aws.clients import Clients
from roundhouse.deploy.builds import codebuild

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
NAMES_A_COMMAND = "Error while executing command"
"""What CodeBuild says of a build that left no reason of its own."""
LOG_FIELDS = ("DeepLink", "GroupName", "StreamName")
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
    outputs = (event.get("taskSucceededEventDetails", {}).get("output") for event in events)
    jobs = (_job(json.loads(output)) for output in outputs if output is not None)
    return next((job for job in jobs if job is not None), None)


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
    builds = [output["Build"]] if "Build" in output else output.get("Builds")
    if builds:
        build, logs = builds[0], builds[0].get("Logs") or {}
        return Job(
            kind="build",
            name=str(build["Id"]),
            state=str(build.get("CurrentPhase", "submitted")),
            has_ended=build.get("BuildStatus") in ENDED,
            logs={name[0].lower() + name[1:]: logs[name] for name in LOG_FIELDS if name in logs},
        )
    if "TrainingJobArn" in output:
        return Job(
            kind="training-job",
            name=str(output["TrainingJobArn"]).rpartition("/")[2],
            state=str(output.get("SecondaryStatus", "Starting")),
            has_ended=output.get("TrainingJobStatus") in ENDED,
            logs={},
        )
    return None
