"""How builds are followed: the build machine's executions, logs of jobs, CodeBuild, progress."""

from __future__ import annotations

import io
import json

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from roundhouse.deploy.builds import engines
from roundhouse.deploy.builds.codebuild import follow, log_location
from roundhouse.deploy.builds.execution import failure_reason, newest_job, progress
from roundhouse.errors import BuildFailedError, NotReadyError
from roundhouse.report import Report, Step
from tests.unit.roundhouse.build_cloud import ARN, Cloud, session_of
from tests.unit.roundhouse.engines import copied_tree, local_deployments

BUILDS_GO_ON = rf"The builds go on, and nobody follows them: {ARN}; run the same command again"


@pytest.fixture
def session(tmp_path):
    tree = copied_tree(tmp_path)
    return session_of(tree, Cloud(local_deployments(tree)))


def build(session, models=()):
    """Build what is missing; return the seconds that were waited, or how it was refused."""
    naps = []
    try:
        engines.build_all(session, engines.missing_engines(session, models), sleep=naps.append)
    except BaseException as error:
        error.naps = naps
        raise
    return naps


@pytest.mark.parametrize("jobs", [1, 12])
def test_an_interrupt_stops_the_execution_then_its_builds_and_jobs_and_nobody_elses(session, jobs):
    """Twelve are more training jobs than SageMaker lists on a page."""
    session.clients.interrupt_at, session.clients.jobs = 2, jobs
    with pytest.raises(KeyboardInterrupt) as interrupted:
        build(session, ("sentence-embedder",))
    names = [f"roundhouse-local--key-{session.clients.tag}-{number}" for number in range(jobs)]
    once = ["roundhouse-local-build-cpu:mine", "roundhouse-local-build-gpu:mine", *names]
    # Twice: what was being started at that moment is there a little later.
    assert session.clients.stopped == [ARN, *once, *once]
    assert interrupted.value.naps == [0.5, 0.5]


@pytest.mark.parametrize(
    ("away", "code", "says", "naps"),
    [
        ((2, 3, 4), None, "The builds go on; asking again", 4),
        ((2, 3), "ThrottlingException", "AWS answered ThrottlingException", 3),
    ],
)
def test_builds_are_followed_to_the_end_though_aws_does_not_answer_for_a_while(
    session, away, code, says, naps
):
    session.clients.away, session.clients.refusal = away, code
    assert len(build(session)) == naps
    shown = " ".join(session.report.console.file.getvalue().split())
    assert says in shown and shown.count("The builds go on; asking again") == 1


@pytest.mark.parametrize(
    ("first", "code", "waited", "message"),
    [
        (1, None, 0, "The builds go on, and nobody follows them"),
        (2, None, 300, BUILDS_GO_ON),
        *((2, code, 0.5, f"AWS answered {code}: .*nobody follows them: {ARN}")
          for code in ("AccessDeniedException", "ExpiredTokenException", "NoSuchThing")),
    ],
)  # fmt: skip
def test_refuses_to_follow_builds_of_which_aws_says_nothing_more_and_they_go_on(
    session, first, code, waited, message
):
    """At once where nothing was ever seen, or where AWS refuses for good, as a permission is."""
    session.clients.away, session.clients.refusal = range(first, 10_000), code
    with pytest.raises(NotReadyError, match=message) as refused:
        build(session)
    assert sum(refused.value.naps) == pytest.approx(waited, abs=1 if waited > 1 else 0)
    assert session.clients.stopped == []
    asks_again = "asking again" in session.report.console.file.getvalue()
    assert asks_again == (waited == 300)


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


def codebuild(**fields):
    logs = {"GroupName": "/g", "StreamName": "s"}
    return {"Builds": [{"Id": "p:1", "BuildStatus": "IN_PROGRESS", "Logs": logs, **fields}]}


def training_job(**fields):
    return {"TrainingJobArn": "arn:aws:sagemaker:us-east-1:1:training-job/j", **fields}


def test_the_job_is_of_the_newest_call():
    started = {"Build": {"Id": "p:1", "BuildStatus": "IN_PROGRESS", "CurrentPhase": "SUBMITTED"}}
    assert of(codebuild(CurrentPhase="BUILD"), started).state == "BUILD"
    assert of(started).state == "SUBMITTED"
    assert of({"MessageId": "1"}, codebuild()).name == "p:1"
    assert of() is None


@pytest.mark.parametrize(
    ("output", "logs", "expected"),
    [
        (codebuild(CurrentPhase="BUILD"), Logs("s", "exporting", "[Container] noise"), "exporting"),
        (training_job(SecondaryStatus="Training"), Logs("j/algo-1-7", "compiling\n"), "compiling"),
        (codebuild(CurrentPhase="QUEUED"), Logs("other", "x"), "queued"),
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
    job, logs = of(codebuild()), Logs("s", "FAILED: too wrong")
    command = "Error while executing command: python -m engine_build. Reason: exit status 3"
    assert failure_reason(logs, job, command) == "FAILED: too wrong"
    assert failure_reason(logs, job, "too wrong") == "too wrong"
    assert failure_reason(logs, None, command) == command
    assert failure_reason(Logs("other"), job, command) == command


class CodeBuild:
    """Answers with one status after the other."""

    def __init__(self, *builds) -> None:
        self.builds, self.calls = list(builds), 0

    def __call__(self, service):
        return self

    def batch_get_builds(self, ids):
        self.calls += 1
        return {"builds": [self.builds.pop(0)]}


def _follow(*builds):
    lines, naps = [], []
    client = CodeBuild(*builds)
    follow(client, "b:1", every_seconds=5, on_line=lines.append, sleep=naps.append)
    return client, lines, naps


def test_a_build_is_followed_to_its_end(tmp_path):
    log = tmp_path / "a log.txt"
    log.write_text("[Container] Entering phase BUILD\nexporting\n[Container] more\n")
    running = {
        "buildStatus": "IN_PROGRESS",
        "currentPhase": "BUILD",
        "logs": {"deepLink": log.as_uri()},
    }
    client, lines, naps = _follow(
        {"buildStatus": "IN_PROGRESS", "currentPhase": "QUEUED"},
        running,
        {"buildStatus": "SUCCEEDED"},
    )
    assert client.calls == 3
    assert lines == ["queued", "exporting"]
    assert naps == [5, 5]


TIMED_OUT = "Build has timed out. "
OUT_OF_MEMORY = "Error while executing command: python3 images.py. Reason: exit status 137"


@pytest.mark.parametrize(
    ("status", "message", "log_text", "reason"),
    [
        ("FAILED", "", "The file is corrupt.\n[Container] FAILED: exit 5\n", "The file is corrupt"),
        ("FAILED", "", "", "the build failed, and its log is empty"),
        ("TIMED_OUT", "", "", "the build reached its time limit; the last line of its log: none"),
        ("STOPPED", "", "", "the build was stopped; the last line of its log: none"),
        (
            "TIMED_OUT",
            TIMED_OUT,
            "step 9\n",
            "the build reached its time limit (Build has timed out.); the last line of its log: "
            "step 9",
        ),
        (
            "FAILED",
            OUT_OF_MEMORY,
            "step 9\n",
            "the build was killed (exit status 137), as when memory runs out; the last line of "
            "its log: step 9",
        ),
    ],
    ids=["last own line", "empty log", "time limit", "stopped", "message", "out of memory"],
)
def test_refuses_a_failed_build_with_its_reason(tmp_path, status, message, log_text, reason):
    log = tmp_path / "build.log"
    log.write_text(log_text)
    phases = [{"phaseType": "BUILD", "contexts": [{"message": message}]}]
    with pytest.raises(BuildFailedError) as error:
        _follow({"buildStatus": status, "phases": phases, "logs": {"deepLink": log.as_uri()}})
    expected = f"{reason}. The lock and the endpoints are as they were. Log: {log}"
    assert str(error.value) == expected


@pytest.mark.parametrize(
    ("logs", "location"),
    [
        ({"deepLink": "https://logs.example/x"}, "https://logs.example/x"),
        ({"groupName": "/g", "streamName": "s"}, "CloudWatch /g/s"),
    ],
)
def test_the_log_of_a_build_in_aws_is_a_link_or_a_stream(logs, location):
    assert log_location({"logs": logs}) == location


def report_on(terminal):
    console = Console(file=io.StringIO(), width=120, force_terminal=terminal, color_system=None)
    return Report(console=console)


def test_a_log_has_a_new_text_seldom_and_the_same_one_more_seldom():
    report = report_on(False)
    step = Step(title="a", console=report.console, progress=None, log_prefix="a: ")
    for seconds_ago in (1, 3, 4, 6, 30):
        step.begin = step.begin - seconds_ago
        step.update("exporting")
    lines = [line for line in report.console.file.getvalue().splitlines() if "…" in line]
    assert [line.split(" s  ")[1] for line in lines[1:]] == ["a: exporting"] * 2


def test_a_terminal_keeps_only_the_result_of_each_step():
    report = report_on(True)
    with report.progress() as progress:
        first = Step(title="a", console=report.console, progress=progress)
        first.update("exporting [red]")
        descriptions = [task.description for task in progress.tasks]
        assert descriptions == ["a  [dim]exporting \\[red][/dim]"]
        Step(title="b", console=report.console, progress=progress)
        first.end("built")
        assert [task.description for task in progress.tasks] == ["b"]
    assert "✓ a: built" in report.console.file.getvalue()
