"""Reading a build's end: its reason and its log's place."""

from __future__ import annotations

import pytest

from roundhouse.deploy.builds.codebuild import follow, log_location, start
from roundhouse.errors import BuildFailedError


class CodeBuild:
    """Answers with one status after the other."""

    def __init__(self, *builds) -> None:
        self.builds, self.calls = list(builds), 0

    def __call__(self, service):
        return self

    def batch_get_builds(self, ids):
        self.calls += 1
        return {"builds": [self.builds.pop(0)]}

    def start_build(self, **request):
        self.request = request
        return {"build": {"id": "b:1"}}


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


def test_a_build_starts_from_its_source():
    client = CodeBuild()
    assert start(client, "p", "b/k") == "b:1"
    assert client.request["projectName"] == "p"
    assert client.request["sourceLocationOverride"] == "b/k"
