"""Which job an engine's history tells of, and where it is."""

from __future__ import annotations

import json

from botocore.exceptions import ClientError

from roundhouse.deploy.builds.job import failure_reason, newest_job, progress


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


def test_the_job_is_of_the_newest_call():
    started = {"Build": {"Id": "p:1", "BuildStatus": "IN_PROGRESS", "CurrentPhase": "SUBMITTED"}}
    looked = {"Builds": [{"Id": "p:1", "BuildStatus": "IN_PROGRESS", "CurrentPhase": "BUILD"}]}
    assert of(looked, started).state == "BUILD"
    assert of(started).state == "SUBMITTED"
    assert of({"MessageId": "1"}, looked).name == "p:1"
    assert of() is None


def test_a_training_job_is_told_by_its_arn():
    arn = "arn:aws:sagemaker:us-east-1:1:training-job/roundhouse-dev--key-0"
    assert of({"TrainingJobArn": arn}).name == "roundhouse-dev--key-0"
    looked = of(
        {"TrainingJobArn": arn, "TrainingJobStatus": "InProgress", "SecondaryStatus": "Downloading"}
    )
    assert (looked.kind, looked.state, looked.has_ended) == ("training-job", "Downloading", False)


def test_progress_is_the_jobs_last_own_line():
    build = of(
        {
            "Builds": [
                {
                    "Id": "p:1",
                    "CurrentPhase": "BUILD",
                    "Logs": {"GroupName": "/g", "StreamName": "s"},
                }
            ]
        }
    )
    assert progress(Logs("s", "exporting", "[Container] noise"), build) == "exporting"
    job = of({"TrainingJobArn": "a:training-job/j", "SecondaryStatus": "Training"})
    assert progress(Logs("j/algo-1-7", "compiling\n"), job) == "compiling"


def test_progress_is_the_state_while_a_job_says_nothing():
    build = of(
        {
            "Builds": [
                {
                    "Id": "p:1",
                    "CurrentPhase": "QUEUED",
                    "Logs": {"GroupName": "/g", "StreamName": "other"},
                }
            ]
        }
    )
    assert progress(Logs("s", "x"), build) == "queued"
    assert (
        progress(
            Logs("s", "x"),
            of({"TrainingJobArn": "a:training-job/j", "SecondaryStatus": "Starting"}),
        )
        == "starting"
    )
    assert progress(Logs("s", "x"), None) == "starting"


def test_progress_of_a_job_that_has_ended_is_that_it_starts_again():
    failed = of(
        {
            "TrainingJobArn": "a:training-job/j",
            "TrainingJobStatus": "Failed",
            "SecondaryStatus": "Failed",
        }
    )
    assert progress(Logs("s", "x"), failed) == "waits for capacity, then starts again"


def test_reason_that_only_names_a_command_gives_way_to_the_builds_last_own_line():
    build = of(
        {
            "Builds": [
                {
                    "Id": "p:1",
                    "BuildStatus": "IN_PROGRESS",
                    "Logs": {"GroupName": "/g", "StreamName": "s"},
                }
            ]
        }
    )
    logs, named = (
        Logs("s", "FAILED: too wrong"),
        "Error while executing command: python -m engine_build. Reason: exit status 3",
    )
    assert failure_reason(logs, build, named) == "FAILED: too wrong"
    assert failure_reason(logs, build, "too wrong") == "too wrong"
    assert failure_reason(logs, None, named) == failure_reason(Logs("other"), build, named) == named
