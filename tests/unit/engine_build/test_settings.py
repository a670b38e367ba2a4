"""The process environment, and the log."""

from __future__ import annotations

import io
import itertools

import pytest

from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.runner import Command, ProcessRunner
from engine_build.settings import settings


def test_settings_come_from_the_environment():
    found = settings(
        {
            "ROUNDHOUSE_SOURCE_COMMIT": "abc",
            "CODEBUILD_BUILD_IMAGE": "image",
            "ROUNDHOUSE_BENCHMARK_SECONDS": "2",
        }
    )
    assert (found.source_commit, found.image, found.benchmark_seconds) == ("abc", "image", 2.0)


@pytest.mark.parametrize(
    ("said", "is_so"),
    [
        ("CUDA Driver OK", True),
        ("CUDA Driver UNAVAILABLE (cuInit(0) returned 803)", False),
        ("", False),
    ],
)
def test_forward_compatibility_is_what_nvidias_image_says(said, is_so):
    assert settings({"_CUDA_COMPAT_STATUS": said}).forward_compatible is is_so


def test_empty_variable_counts_as_unset():
    assert settings({"ROUNDHOUSE_SOURCE_COMMIT": ""}) == settings({})


def test_refuses_seconds_that_are_no_number():
    with pytest.raises(InputRefused, match="ROUNDHOUSE_BENCHMARK_SECONDS is 'soon'"):
        settings({"ROUNDHOUSE_BENCHMARK_SECONDS": "soon"})


def test_log_tells_each_step_before_and_after_and_keeps_a_copy(tmp_path):
    stream = io.StringIO()
    log = Log(stream, clock=itertools.count(step=2.5).__next__)
    log.keep(tmp_path / "build.log")
    with log.step("export", "to ONNX"):
        log.note("for the file alone")
    assert stream.getvalue().splitlines() == ["export: to ONNX", "export … 2.5 seconds"]
    assert (tmp_path / "build.log").read_text().splitlines()[1] == "for the file alone"
    assert log.seconds == {"export": 2.5}


def test_runner_prints_a_command_and_records_it_in_a_script(tmp_path):
    stream = io.StringIO()
    runner = ProcessRunner(Log(stream))
    runner.record(tmp_path / "reproduce.sh")
    ended = runner.run(Command(argv=("sh", "-c", "echo out; echo err >&2; exit 3")))
    assert (ended.code, ended.output, ended.errors) == (3, "out\n", "err\n")
    assert "$ sh -c 'echo out; echo err >&2; exit 3'" in stream.getvalue()
    assert (
        (tmp_path / "reproduce.sh").read_text().endswith("sh -c 'echo out; echo err >&2; exit 3'\n")
    )


def test_runner_says_why_a_program_does_not_start():
    ended = ProcessRunner(Log(io.StringIO())).run(Command(argv=("no-such-program-here",)))
    assert (ended.code, ended.errors) == (127, "cannot be started: No such file or directory")


def test_runner_stops_what_takes_too_long():
    ended = ProcessRunner(Log(io.StringIO())).run(
        Command(argv=("sleep", "60"), timeout_seconds=0.2)
    )
    assert ended.code == 124 and "stopped" in ended.errors
