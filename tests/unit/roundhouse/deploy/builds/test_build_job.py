"""Which job an engine's history tells of, and where it is."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from roundhouse.deploy.builds.execution import failure_reason, newest_job, progress


def succeeded(output):
    return {"type": "TaskSucceeded", "taskSucceededEventDetails": {"output": json.dumps(output)}}


def of(*outputs):
    """The job of a history whose calls gave these, the newest first."""
    other = {"type": "WaitStateEntered", "stateEnteredEventDetails": {"input": "{}"}}
    return newest_job([other, *map(succeeded, outputs)])


class Logs:
    """CloudWatch with one stream."""

    def __init__(self, stream, *lines):
        self.stream, self.lines = stream, lines

    def __call__(self, service):
        return self

    def describe_log_streams(self, logGroupName, logStreamNamePrefix, limit):
        found = self.stream.startswith(logStreamNamePrefix)
        return {"logStreams": [{"logStreamName": self.stream}] if found else []}

    def get_log_events(self, logGroupName, logStreamName, limit):
        if logStreamName != self.stream:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "GetLogEvents")
        return {"events": [{"message": line} for line in self.lines]}


def build(**fields):
    logs = {"GroupName": "/g", "StreamName": "s"}
    return {"Builds": [{"Id": "p:1", "BuildStatus": "IN_PROGRESS", "Logs": logs, **fields}]}


def training_job(**fields):
    return {"TrainingJobArn": "arn:aws:sagemaker:us-east-1:1:training-job/j", **fields}


def test_the_job_is_of_the_newest_call():
    started = {"Build": {"Id": "p:1", "BuildStatus": "IN_PROGRESS", "CurrentPhase": "SUBMITTED"}}
    assert of(build(CurrentPhase="BUILD"), started).state == "BUILD"
    assert of(started).state == "SUBMITTED"
    assert of({"MessageId": "1"}, build()).name == "p:1"
    assert of() is None


def test_the_name_of_a_training_job_is_the_end_of_its_arn():
    assert of(training_job()).name == "j"
    job = of(training_job(TrainingJobStatus="InProgress", SecondaryStatus="Downloading"))
    assert (job.kind, job.state, job.has_ended) == ("training-job", "Downloading", False)


@pytest.mark.parametrize(
    ("output", "logs", "expected"),
    [
        (build(CurrentPhase="BUILD"), Logs("s", "exporting", "[Container] noise"), "exporting"),
        (training_job(SecondaryStatus="Training"), Logs("j/algo-1-7", "compiling\n"), "compiling"),
        (build(CurrentPhase="QUEUED"), Logs("other", "x"), "queued"),
        (training_job(SecondaryStatus="Starting"), Logs("other", "x"), "starting"),
        (None, Logs("s", "x"), "starting"),
        (
            training_job(TrainingJobStatus="Failed"),
            Logs("j/algo-1-7", "x"),
            "waits for capacity, then starts again",
        ),
    ],
    ids=["build's log", "job's log", "build's phase", "job's status", "no job", "ended"],
)
def test_progress_is_the_last_own_line_of_the_log_or_the_state(output, logs, expected):
    assert progress(logs, None if output is None else of(output)) == expected


def test_reason_that_only_names_a_command_gives_way_to_the_builds_last_own_line():
    job, logs = of(build()), Logs("s", "FAILED: too wrong")
    command = "Error while executing command: python -m engine_build. Reason: exit status 3"
    assert failure_reason(logs, job, command) == "FAILED: too wrong"
    assert failure_reason(logs, job, "too wrong") == "too wrong"
    assert failure_reason(logs, None, command) == command
    assert failure_reason(Logs("other"), job, command) == command
