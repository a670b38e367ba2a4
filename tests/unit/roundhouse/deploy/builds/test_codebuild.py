"""Reading a build's end: its reason and its log's place."""

from __future__ import annotations

import pytest

from roundhouse.deploy.builds.codebuild import BuildRequest, Follower, follow, log_location, start
from roundhouse.errors import BuildFailedError


class CodeBuild:
    """Answers with one status after the other."""

    def __init__(self, *builds) -> None:
        self.builds, self.asked = list(builds), 0

    def __call__(self, service):
        return self

    def batch_get_builds(self, ids):
        self.asked += 1
        return {"builds": [self.builds.pop(0)]}

    def start_build(self, **order):
        self.order = order
        return {"build": {"id": "b:1"}}


def _follow(*builds):
    lines, naps = [], []
    client = CodeBuild(*builds)
    follow(client, "b:1", Follower(every_seconds=5, on_line=lines.append, sleep=naps.append))
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
    assert client.asked == 3
    assert lines == ["queued", "exporting"]
    assert naps == [5, 5]


def test_refuses_a_failed_build_with_the_last_own_line_of_its_log(tmp_path):
    log = tmp_path / "build.log"
    log.write_text(
        "exporting\nThe ONNX file is corrupt.\n[Container] Phase BUILD FAILED: exit status 5\n"
    )
    with pytest.raises(BuildFailedError) as error:
        _follow({"buildStatus": "FAILED", "logs": {"deepLink": log.as_uri()}})
    assert (
        str(error.value)
        == f"The ONNX file is corrupt. The lock and the endpoints are as they were. Log: {log}"
    )


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ({"buildStatus": "FAILED"}, "the build failed, and its log is empty."),
        (
            {"buildStatus": "TIMED_OUT"},
            "the build reached its time limit; the last line of its log: none.",
        ),
        ({"buildStatus": "STOPPED"}, "the build was stopped; the last line of its log: none."),
    ],
)
def test_refuses_a_build_that_left_no_word(build, said):
    with pytest.raises(BuildFailedError, match=f"^{said} The lock"):
        _follow({**build, "logs": {"deepLink": "https://logs.example/x"}})


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        (
            "TIMED_OUT",
            "Build has timed out. ",
            "the build reached its time limit (Build has timed out.); the last line of its "
            "log: step 9 of 12",
        ),
        (
            "FAILED",
            "Error while executing command: python3 images.py. Reason: exit status 137",
            "the build was killed (exit status 137), as when memory runs out; the last line "
            "of its log: step 9 of 12",
        ),
    ],
)
def test_the_last_words_of_a_build_that_was_ended_are_not_its_reason(
    status, message, said, tmp_path
):
    log = tmp_path / "build.log"
    log.write_text("step 9 of 12\n")
    phases = [{"phaseType": "BUILD", "contexts": [{"message": message}]}]
    with pytest.raises(BuildFailedError) as error:
        _follow({"buildStatus": status, "phases": phases, "logs": {"deepLink": log.as_uri()}})
    assert str(error.value).startswith(f"{said}. The lock")


def test_the_log_of_a_build_in_aws_is_a_link_or_a_stream():
    assert (
        log_location({"logs": {"deepLink": "https://logs.example/x"}}) == "https://logs.example/x"
    )
    assert log_location({"logs": {"groupName": "/g", "streamName": "s"}}) == "CloudWatch /g/s"


def test_a_build_starts_with_its_variables():
    client = CodeBuild()
    assert start(client, BuildRequest(project="p", source="b/k", variables={"A": "1"})) == "b:1"
    assert client.order["environmentVariablesOverride"] == [
        {"name": "A", "value": "1", "type": "PLAINTEXT"}
    ]
